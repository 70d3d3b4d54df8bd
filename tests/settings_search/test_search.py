"""Processes that share a search train each trial once, and nothing is lost with one of them."""

import sqlite3
from contextlib import ExitStack
from statistics import median

import pytest

from antiphon.exceptions import RunError
from antiphon.recipe.recipe_file import find_recipe
from antiphon.runs.run_folder import RunFolder
from antiphon.settings_search import search as search_module
from antiphon.settings_search.search import SearchOptions, SettingsSearch
from antiphon.settings_search.search_space import parse_space
from antiphon.storage.manifest import seal_run
from antiphon.training.loop import Interrupted
from antiphon.training.state import History
from tests.settings_search.databases import silence

GRID = ["train.seed=1,2", "model.layers=1,2"]
RANGES = ["train.learning_rate=1e-4..1e-1:log", "model.dropout=0.0..0.5"]
METRIC = ["train.dev_metric=perplexity"]


@pytest.fixture
def join(tmp_path, quick_commits):
    """Joins a search as one more process would, until the end of the test."""
    with ExitStack() as stack:

        def joined(grid=GRID, settings=METRIC, **options):
            search = SettingsSearch(
                parse_space(find_recipe("toy"), settings, grid, tmp_path / "out"), SearchOptions(**options)
            )
            stack.enter_context(search.joined())
            return search

        yield joined


class Trainer:
    """Stands for training: notes what is trained, reports ``epochs`` with the value of a trial and saves it."""

    def __init__(self, objective=lambda recipe: 1.0, epochs=1, perplexities=()):
        self.objective, self.epochs, self.trained = objective, epochs, []
        self.perplexities = iter(perplexities)

    def __call__(self, recipe, folder, report):
        assert recipe.data.test is None
        self.trained.append(folder.name)
        value = self.objective(recipe)
        report.on_train_begin(History("perplexity", 10), self.epochs)
        for epoch in range(1, self.epochs + 1):
            report.on_epoch_end(epoch, {"epoch": epoch, "dev_perplexity": value}, None)
        folder.mkdir(parents=True, exist_ok=True)
        metric = recipe.train.dev_metric
        extra = {"dev_perplexity": next(self.perplexities, value)}
        RunFolder(folder).save_metrics(
            {f"dev_{metric}": value, "epochs": self.epochs, "training_seconds": 1.5}
            | ({} if metric == "perplexity" else extra)
        )
        seal_run(folder)


def complete_all(search, objective=lambda recipe: 1.0, **options):
    """Trains all that is left; what was trained."""
    trainer = Trainer(objective, **options)
    search.run(trainer, lambda _: None)
    return trainer.trained


def drawn(search):
    return [dict(trial.params) for trial in search.study.get_trials(deepcopy=False)]


def die(search):
    """A trial of a process that was killed long ago."""
    trial = search.study.ask()
    for axis in search.space.axes:
        axis.suggest(trial)
    trial.report(2.5, 1)
    search._storage._backend.record_heartbeat(trial._trial_id)
    silence(search._storage._backend.engine)
    return trial


def interrupt(search, error):
    """Runs a search until its first training is stopped."""

    def stop(recipe, folder, report):
        raise error

    with pytest.raises(type(error)):
        search.run(stop, lambda _: None)


def test_every_combination_is_trained_once_and_the_best_comes_first(join):
    search = join()
    assert len(set(complete_all(search, lambda recipe: recipe.train.seed + recipe.model.layers / 4))) == 4
    assert [result.value for result in search.results()] == [1.25, 1.5, 2.25, 2.5]
    assert [result.seconds for result in search.results()] == [1.5] * 4
    other = join()
    assert complete_all(other) == []
    assert other.results() == search.results()


def test_of_trials_with_the_same_value_the_one_with_the_lowest_perplexity_is_the_best(join):
    search = join(settings=["train.dev_metric=accuracy"])
    complete_all(search, lambda _: 0.0, perplexities=(7.0, 8.0, 5.0, 6.0))
    assert [result.perplexity for result in search.results()] == [5.0, 6.0, 7.0, 8.0]


def test_a_trial_of_a_process_that_is_gone_is_trained_by_another_and_keeps_its_epochs(join):
    one, other = join(RANGES, sampler="random", trials=2), join(RANGES, sampler="random", trials=2)
    lost = die(one)
    assert len(complete_all(other)) == 2
    assert {result.state for result in other.results()} == {"complete"}
    again = other.study.get_trials(deepcopy=False)[1]
    assert (again.params, again.intermediate_values) == (lost.params, {1: 2.5})


def test_a_trial_that_kills_its_process_is_not_tried_for_ever(join):
    search = join(["train.seed=1"])
    for _ in range(3):
        die(search)
        search_module.fail_stale_trials(search.study)
    assert complete_all(search) == []
    assert [(result.state, result.problem) for result in search.results()] == [("failed", "its process was killed")]
    assert len(complete_all(join(["train.seed=1"]))) == 1


def test_a_trial_whose_process_died_before_its_first_heartbeat_is_repeated(join, monkeypatch):
    one, other = join(), join()
    with pytest.warns(UserWarning, match="Heartbeat"):
        one.study.ask()
    monkeypatch.setattr(search_module, "_GRACE_SECONDS", -1)
    assert len(complete_all(other)) == 4
    assert [result.state for result in other.results()] == ["complete"] * 4


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Interrupted("", 143, resumable=True)])
def test_a_trial_that_is_stopped_waits_for_anyone(join, error):
    one, other = join(), join()
    interrupt(one, error)
    assert len(complete_all(other)) == 4
    assert [result.state for result in other.results()] == ["complete"] * 4


def test_a_trial_that_failed_is_tried_again_by_the_next_process_and_counts_once(join):
    def fail_once(recipe):
        if recipe.model.layers == 1:
            raise RunError("no such file")
        return 2.0

    one = join()
    assert len(complete_all(one, fail_once)) == 4
    assert sorted(result.problem for result in one.results()) == ["", "", "no such file", "no such file"]
    other = join()
    assert len(complete_all(other)) == 2
    assert [result.state for result in other.results()] == ["complete"] * 4


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_what_is_drawn_follows_from_the_seed_whichever_process_draws(join, tmp_path, sampler):
    def objective(recipe):
        return recipe.model.dropout + 1

    for trials in range(1, 13):
        search = join(RANGES, sampler=sampler, trials=trials)
        complete_all(search, objective)
    shared = drawn(search)
    (tmp_path / "out" / "search.db").rename(tmp_path / "moved")
    alone = join(RANGES, sampler=sampler, trials=12)
    complete_all(alone, objective)
    assert len({params["model.dropout"] for params in shared}) == 12
    if sampler == "random":  # TPE draws some at random, depending on how many there will be
        assert drawn(alone) == shared
    (tmp_path / "out" / "search.db").unlink()
    other = join(RANGES, sampler=sampler, trials=3, seed=2)
    complete_all(other, objective)
    assert drawn(other) != shared[:3]


def test_more_trials_may_be_asked_for_later_and_random_ones_serve_tpe(join):
    assert len(complete_all(join(RANGES, sampler="random", trials=3))) == 3
    assert len(complete_all(join(RANGES, sampler="tpe", trials=5))) == 2
    assert complete_all(join(RANGES, sampler="random", trials=5)) == []


def test_tpe_draws_where_good_values_were(join):
    search = join(["model.dropout=0.0..0.9", "train.ema_decay=0.0..0.9"], sampler="tpe", trials=40, seed=2)
    complete_all(search, lambda recipe: 1 + (recipe.model.dropout - 0.3) ** 2)
    distances = [abs(params["model.dropout"] - 0.3) for params in drawn(search)]
    assert median(distances[-20:]) < median(distances[:10]) / 2


def test_a_trial_that_falls_behind_the_median_is_pruned(join):
    search = join(["train.seed=1,2,3,4,5,6"], pruner="median")
    values = {1: 1.0, 2: 2.0, 3: 3.0, 4: 4.0, 5: 2.2, 6: 2.8}
    complete_all(search, lambda recipe: values[recipe.train.seed], epochs=2)
    *complete, pruned = search.results()
    assert {result.state for result in complete} == {"complete"}
    assert (pruned.state, pruned.value, pruned.epochs) == ("pruned", 2.8, 1)
    assert complete_all(join(["train.seed=1,2,3,4,5,6"], pruner="median")) == []


def test_hyperband_gives_all_epochs_to_few_trials_and_the_best_is_among_them(join):
    search = join(RANGES, sampler="random", trials=20, pruner="hyperband")
    complete_all(search, lambda recipe: 1 + recipe.model.dropout, epochs=9)
    results = search.results()
    assert len([result for result in results if result.state == "pruned"]) >= 5
    assert results[0].state == "complete"
    assert sum(result.epochs for result in results) < 20 * 9 * 0.8


@pytest.mark.parametrize(
    ("grid", "settings", "sampler", "message"),
    [
        (GRID, [*METRIC, "train.max_epochs=3"], "grid", "searched with train.max_epochs = 20, now 3"),
        (GRID, ["train.dev_metric=accuracy"], "grid", "searched with train.dev_metric = perplexity, now accuracy"),
        (GRID[:1], METRIC, "grid", "searched with --grid model.layers = 1,2, now not set"),
        (GRID, METRIC, "tpe", "searched with --sampler = grid, now random or tpe"),
        (["train.seed=1,2,3", GRID[1]], METRIC, "tpe", "searched with --grid train.seed = 1,2, now 1,2,3"),
    ],
)
def test_another_search_in_the_folder_is_refused_and_nothing_changes(join, tmp_path, grid, settings, sampler, message):
    join()
    before = (tmp_path / "out" / "search.db").read_bytes()
    with pytest.raises(RunError, match=message):
        join(grid, settings, sampler=sampler, trials=4)
    assert (tmp_path / "out" / "search.db").read_bytes() == before


def test_a_grid_may_get_further_values(join):
    assert len(complete_all(join())) == 4
    assert len(complete_all(join(["train.seed=1,2,3", GRID[1]]))) == 6


def test_a_file_that_is_no_database_is_refused(join, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "search.db").write_text("not a database\n[]\n")
    with pytest.raises(RunError, match=r"search\.db: file is not a database, expected .* trained runs are found again"):
        join()


def test_a_link_in_place_of_the_database_is_refused_and_not_followed(join, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "search.db").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunError, match=r"search\.db: a symbolic link, expected"):
        join()
    assert not (tmp_path / "elsewhere").exists()


def test_a_full_disk_is_one_sentence(tmp_path, monkeypatch, quick_commits):
    search = SettingsSearch(parse_space(find_recipe("toy"), METRIC, GRID, tmp_path / "out"), SearchOptions())
    with search.joined():
        pass
    connect = sqlite3.connect

    def connect_to_full_disk(*arguments, **options):
        connection = connect(*arguments, **options)
        connection.execute("PRAGMA max_page_count = 1")
        return connection

    monkeypatch.setattr(sqlite3, "connect", connect_to_full_disk)

    def fill(search):
        with search.joined():
            for number in range(1000):
                search.study.set_user_attr(str(number), "x" * 1000)

    with pytest.raises(RunError, match=r"search\.db: database or disk is full, expected a database that can be read"):
        fill(search)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nonsense", "--storage: Could not parse SQLAlchemy URL"),
        ("nonsense://me:secret@host/name", r"--storage nonsense://me:\*\*\*@host/name: Can't load plugin"),
        ("postgresql://me:secret@host:port/name", "--storage: the port is not a number, expected a URL such as"),
        ("sqlite:////nowhere/at/all.db", "--storage sqlite:////nowhere/at/all.db: unable to open database file"),
    ],
)
def test_a_database_that_cannot_be_used_is_one_sentence_without_its_password(join, monkeypatch, url, message):
    monkeypatch.setattr(search_module, "_OPEN_PAUSE", 0)
    with pytest.raises(RunError, match=message) as error:
        join(storage=url)
    assert "secret" not in str(error.value)


def test_the_name_of_a_folder_may_have_any_characters(tmp_path, quick_commits):
    out = tmp_path / "a {b} %20 ?c=1#d 'é"
    search = SettingsSearch(parse_space(find_recipe("toy"), METRIC, GRID, out), SearchOptions())
    with search.joined():
        assert len(complete_all(search)) == 4
    assert (out / "search.db").is_file()
    assert [path.name for path in tmp_path.iterdir()] == [out.name]
