"""Processes that share a search claim each trial once, and nothing is lost with one of them."""

import sqlite3
from contextlib import ExitStack
from statistics import median

import pytest
from optuna.trial import TrialState, create_trial

from antiphon.exceptions import RunError
from antiphon.recipe.recipe_file import find_recipe
from antiphon.settings_search import search as search_module
from antiphon.settings_search.search import SearchOptions, SettingsSearch
from antiphon.settings_search.search_space import parse_space
from antiphon.settings_search.trials import results_of
from antiphon.training.callback import EpochReport
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


def die(search):
    """What a process leaves in the database some time after it has been killed."""
    trial_ids = [*search._running]
    search._running.clear()
    silence(search._rdb.engine, trial_ids)


def complete_all(search, objective=lambda params: 1.0):
    """Claims and completes all that is left; the parameters of each trial."""
    claimed = []
    while trial := search.claim():
        claimed.append(dict(trial.params))
        search.complete(trial, objective(trial.params), 3, 1.5)
    return claimed


def test_two_processes_claim_every_combination_once(join):
    one, other = join(), join()
    trials = [search.claim() for search in (one, other, one, other)]
    assert {tuple(trial.params.values()) for trial in trials} == {("1", "1"), ("1", "2"), ("2", "1"), ("2", "2")}
    assert one.claim() is other.claim() is None
    assert not one.is_over
    for number, (search, trial) in enumerate(zip((one, other, one, other), trials, strict=True)):
        search.complete(trial, 4.0 - number, 3, 1.5)
    assert one.is_over
    assert other.is_over
    assert [result.value for result in results_of(one)] == [1.0, 2.0, 3.0, 4.0]
    assert results_of(one) == results_of(other) == results_of(join())


def test_of_trials_with_the_same_value_the_one_with_the_lowest_perplexity_is_the_best(join):
    search = join()
    for perplexity in (7.0, None, 5.0, 6.0):
        search.complete(search.claim(), 0.0, 3, 1.5, perplexity)
    assert [result.perplexity for result in results_of(search)] == [5.0, 6.0, 7.0, None]


def test_a_trial_of_a_process_that_is_gone_is_claimed_again_and_keeps_its_epochs(join):
    one, other = join(), join()
    lost = one.claim()
    assert one.report(lost, EpochReport(1, 5, 2.5, 1.0))
    assert other.claim().params != lost.params
    assert other.claim().params != lost.params
    die(one)
    again = [other.claim() for _ in range(2)]
    assert other.claim() is None
    assert again[0].params == lost.params
    assert other.report(again[0], EpochReport(1, 5, 2.5, 1.0))
    results = {result.settings: result for result in results_of(other)}
    assert len(results) == 4
    assert results["train.seed=1", "model.layers=1"].epochs == 1
    assert not one.report(lost, EpochReport(2, 5, 2.0, 2.0))  # the first process comes back: it has lost the trial
    one.complete(lost, 0.0, 5, 5.0)
    other.complete(again[0], 3.0, 5, 5.0)
    assert [result.value for result in results_of(other) if result.state == "complete"] == [3.0]


def test_a_trial_that_failed_is_tried_again_by_the_next_process_and_counts_once(join):
    one = join(RANGES, sampler="random", trials=2)
    bad, good = one.claim(), one.claim()
    one.fail(bad, "no such file")
    one.complete(good, 2.0, 1, 1.0)
    assert one.is_over
    assert [result.problem for result in results_of(one)] == ["", "no such file"]
    other = join(RANGES, sampler="random", trials=2)
    assert complete_all(other) == [bad.params]
    assert [result.state for result in results_of(other)] == ["complete", "complete"]


def test_a_trial_given_back_waits_for_anyone(join):
    one, other = join(), join()
    trial = one.claim()
    one.give_back(trial, kills=1)
    assert [result.state for result in results_of(one)] == ["waiting"]
    again = other.claim()
    assert (again.params, again.user_attrs["kills"]) == (trial.params, 1)


def test_a_process_that_dies_right_after_it_has_claimed_a_trial_does_not_keep_it(join, monkeypatch):
    one, other = join(RANGES, sampler="random", trials=1), join(RANGES, sampler="random", trials=1)

    def run_out_of_memory(self, trial, rank):
        raise MemoryError

    monkeypatch.setattr(SettingsSearch, "_with_values", run_out_of_memory)
    with pytest.raises(MemoryError):
        one.claim()
    monkeypatch.undo()
    assert other.claim() is None
    assert not other.is_over
    die(one)
    assert set(other.claim().params) == {"train.learning_rate", "model.dropout"}


def test_trials_that_two_processes_make_at_the_same_time_are_not_more_than_were_asked_for(join):
    one, other = join(RANGES, sampler="random", trials=3), join(RANGES, sampler="random", trials=3)
    for _ in range(5):
        one.study.add_trial(create_trial(state=TrialState.WAITING))
    assert len(complete_all(other)) == 3
    assert one.is_over
    assert len(complete_all(join(RANGES, sampler="random", trials=4))) == 1


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_what_is_drawn_follows_from_the_seed_whichever_process_draws(join, tmp_path, sampler):
    one, other = (join(RANGES, sampler=sampler, trials=12) for _ in range(2))
    shared = []
    for search in [one, other] * 6:
        trial = search.claim()
        shared.append(dict(trial.params))
        search.complete(trial, trial.params["model.dropout"] + 1, 1, 1.0)
    (tmp_path / "out" / "search.db").rename(tmp_path / "moved")
    alone = complete_all(join(RANGES, sampler=sampler, trials=12), lambda params: params["model.dropout"] + 1)
    assert alone == shared
    assert len({params["model.dropout"] for params in shared}) == 12
    (tmp_path / "out" / "search.db").unlink()
    assert complete_all(join(RANGES, sampler=sampler, trials=3, seed=2)) != shared[:3]


def test_more_trials_may_be_asked_for_later_and_random_ones_serve_tpe(join):
    assert len(complete_all(join(RANGES, sampler="random", trials=3))) == 3
    assert len(complete_all(join(RANGES, sampler="tpe", trials=5))) == 2
    assert complete_all(join(RANGES, sampler="random", trials=5)) == []


def test_tpe_draws_where_good_values_were(join):
    search = join(["model.dropout=0.0..0.9", "train.ema_decay=0.0..0.9"], sampler="tpe", trials=40, seed=2)
    drawn = complete_all(search, lambda params: 1 + (params["model.dropout"] - 0.3) ** 2)
    distances = [abs(params["model.dropout"] - 0.3) for params in drawn]
    assert median(distances[-20:]) < median(distances[:10]) / 2


def test_a_trial_that_falls_behind_the_median_is_pruned(join):
    search = join(RANGES, sampler="random", trials=6, pruner="median")
    for value in (1.0, 2.0, 3.0, 4.0):
        trial = search.claim()
        assert search.report(trial, EpochReport(1, 2, value, 1.0))
        search.complete(trial, value, 2, 2.0)
    ahead, behind = search.claim(), search.claim()
    assert search.report(ahead, EpochReport(1, 2, 2.2, 1.0))
    assert not search.report(behind, EpochReport(1, 2, 2.8, 1.0))
    search.prune(behind)
    assert search.report(ahead, EpochReport(2, 2, 99.0, 2.0))  # the last epoch is trained already
    search.complete(ahead, 2.2, 2, 2.0)
    result = results_of(search)[-1]
    assert (result.state, result.value, result.epochs, result.seconds) == ("pruned", 2.8, 1, 1.0)
    assert search.is_over


def test_hyperband_gives_all_epochs_to_few_trials_and_the_best_is_among_them(join):
    search = join(RANGES, sampler="random", trials=20, pruner="hyperband")
    while trial := search.claim():
        value = 1 + trial.params["model.dropout"]
        reports = (search.report(trial, EpochReport(epoch, 9, value, float(epoch))) for epoch in range(1, 10))
        if all(reports):
            search.complete(trial, value, 9, 9.0)
        else:
            search.prune(trial)
    results = results_of(search)
    pruned = [result for result in results if result.state == "pruned"]
    assert len(pruned) >= 5
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
    search = join()
    trial = search.claim()
    search._running.clear()  # no further heartbeats
    before = (tmp_path / "out" / "search.db").read_bytes()
    with pytest.raises(RunError, match=message):
        join(grid, settings, sampler=sampler, trials=4)
    assert (tmp_path / "out" / "search.db").read_bytes() == before
    search.complete(trial, 1.0, 1, 1.0)


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
        search.claim()
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
    assert [path.name for path in out.iterdir()] == ["search.db"]
    assert [path.name for path in tmp_path.iterdir()] == [out.name]
