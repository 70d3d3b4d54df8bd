"""What the operating system refuses is one sentence too, and a pipe that is closed early is not a failure."""

import errno
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from types import SimpleNamespace

import pytest

from antiphon.__main__ import loads_in_child
from antiphon.cli.failures import failure_of
from antiphon.storage.files import scratch_name
from tests.cli.test_bad_input import assert_refused, write
from tests.sealing import seal_again
from tests.toy import TOY, write_pairs


def shell(command, run, **environment):
    """Runs a line of bash in which ``antiphon`` is this package and ``$RUN`` the toy run."""
    script = f'antiphon() {{ "{sys.executable}" -m antiphon "$@"; }}\nset -o pipefail\n{command}'
    environment = os.environ | {"RUN": str(run), "PYTHONPATH": os.pathsep.join(sys.path)} | environment
    return subprocess.run(["bash", "-c", script], capture_output=True, check=False, env=environment, timeout=100)


def assert_sentence(done, *parts):
    err = done.stderr.decode()
    assert done.returncode == 2, err
    assert err.startswith("antiphon: ")
    assert err.count("\n") == 1
    for part in parts:
        assert part in err


def test_a_reader_that_leaves_early_is_no_failure(toy_run):
    done = shell("yes badu | head -5000 | antiphon predict $RUN | head -1; echo ${PIPESTATUS[2]}", toy_run)
    assert done.stdout.split()[-1] == b"0"
    assert done.stderr == b""


def test_a_full_disk_behind_standard_output_is_named(toy_run):
    assert_sentence(shell("antiphon predict $RUN <<< badu > /dev/full", toy_run), "standard output: no space left")


def test_closed_streams_are_named(toy_run):
    assert_sentence(shell("antiphon recipes >&-", toy_run), "standard output: bad file descriptor")
    assert_sentence(shell("antiphon predict $RUN <&-", toy_run), "standard input: bad file descriptor")
    assert shell("antiphon info $RUN 2>&-", toy_run).returncode == 0


def test_outputs_are_utf8_whatever_the_terminal_speaks(toy_run):
    done = shell("antiphon predict $RUN --format jsonl <<< Ω", toy_run, PYTHONIOENCODING="ascii", LC_ALL="C")
    assert done.returncode == 0, done.stderr
    assert "Ω" in done.stdout.decode("utf-8")


def test_pairs_from_a_pipe_are_all_read_and_no_copy_is_left(antiphon, tmp_path, monkeypatch):
    """As many as a pipe does not hold at once, given as a shell gives those of ``<(command)``."""
    pairs, temporary = write_pairs(tmp_path / "pairs.tsv", 6000), tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))

    def train(data, dev, out):
        settings = [f"data.train={data}", f"data.dev={dev}", "model.kind=suffix_rule"]
        options = [part for setting in settings for part in ("--set", setting)]
        return antiphon("train", "toy", *options, "--out", out).status

    def train_from_pipe(dev, out):
        reading, writing = os.pipe()
        writer = threading.Thread(target=write_all, args=(writing, pairs.read_bytes()))
        writer.start()
        status = train(f"/dev/fd/{reading}", dev, out)
        os.close(reading)
        writer.join()
        return status

    assert train_from_pipe(TOY / "dev.tsv", tmp_path / "piped") == train(pairs, TOY / "dev.tsv", tmp_path / "read") == 0
    assert (tmp_path / "piped/rules.tsv").read_bytes() == (tmp_path / "read/rules.tsv").read_bytes()
    assert train_from_pipe(tmp_path / "none.tsv", tmp_path / "refused") == 2
    assert list(temporary.iterdir()) == []


def write_all(pipe, content):
    """Writes to a pipe until all is written or nothing reads it."""
    with suppress(BrokenPipeError), os.fdopen(pipe, "wb") as file:
        file.write(content)


@pytest.mark.parametrize(
    ("out", "parts"),
    [
        ("file/run", ["file", "not a directory"]),
        ("x" * 300, ["file name too long"]),
        ("/proc/run", ["/proc"]),
    ],
)
def test_a_run_that_cannot_be_written_is_refused_with_its_path(antiphon, tmp_path, monkeypatch, out, parts):
    write(tmp_path / "file", b"")
    train, dev = write_pairs(tmp_path / "train.tsv", 5), write_pairs(tmp_path / "dev.tsv", 2)
    monkeypatch.chdir(tmp_path)
    settings = ["--set", f"data.train={train}", "--set", f"data.dev={dev}", "--set", "train.max_epochs=1"]
    result = antiphon("train", "toy", *settings, "--out", out)
    assert result.status == 2
    assert "Traceback" not in result.err
    for part in parts:
        assert part in result.err


def test_a_named_pipe_that_nothing_writes_into_is_refused(antiphon, toy_run, tmp_path, monkeypatch):
    monkeypatch.setattr("antiphon.torch_free.readers.WRITER_SECONDS", 0.01)
    os.mkfifo(tmp_path / "pipe")
    assert_refused(antiphon("predict", toy_run, tmp_path / "pipe"), "a named pipe that nothing writes into")
    assert_refused(antiphon("evaluate", toy_run, tmp_path / "pipe"), "a named pipe that nothing writes into")
    assert_refused(antiphon("compare", toy_run, toy_run, tmp_path / "pipe"), "expected a regular file")
    assert_refused(antiphon("train", tmp_path / "pipe"), "a named pipe that nothing writes into")


@pytest.mark.parametrize(
    "message",
    [
        "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes",
        "std::bad_alloc",
        "could not create a primitive",
    ],
)
def test_a_lack_of_memory_is_one_sentence(antiphon, toy_run, monkeypatch, message):
    def exhausted(*_, **__):
        raise RuntimeError(message)

    monkeypatch.setitem(sys.modules, "antiphon.training.step", None)  # nothing can be imported any more
    monkeypatch.setattr("antiphon.data.batch.Batch.from_padded", exhausted)
    for verb in (["predict", toy_run], ["align", toy_run, "src/antiphon/recipe/shipped/toy/dev.tsv"]):
        assert_refused(antiphon(*verb, stdin=b"badu\n"), "out of memory")


def test_libraries_that_do_not_fit_into_memory_are_one_sentence(monkeypatch, capsys):
    from antiphon import __main__, cli

    def import_large_library(*_):
        raise ImportError("libtorch_cpu.so: failed to map segment from shared object")

    monkeypatch.setattr("sys.argv", ["antiphon", "--version"])
    monkeypatch.setattr(cli, "_run", import_large_library)
    with pytest.raises(SystemExit, match="2"):
        cli.main()
    monkeypatch.delitem(sys.modules, "antiphon.cli")
    monkeypatch.setattr(sys, "meta_path", [SimpleNamespace(find_spec=import_large_library), *sys.meta_path])
    with pytest.raises(SystemExit, match="2"):
        __main__.main()
    refused = capsys.readouterr().err.splitlines()
    assert [line.split(",")[0].split(" (")[0] for line in refused] == ["antiphon: out of memory"] * 2


@pytest.mark.parametrize(("mebibytes", "status", "said"), [(512, 2, ["antiphon: out of memory"]), (2**16, 0, [])])
def test_a_limit_of_memory_below_the_size_of_pytorch_is_one_sentence(toy_run, mebibytes, status, said):
    limit = f"ulimit -c 0; ulimit -v {1024 * mebibytes}; exec "
    command = [sys.executable, "-m", "antiphon", "predict", str(toy_run)]
    done = subprocess.run(
        ["bash", "-c", limit + shlex.join(command)], input="badu\n", capture_output=True, text=True, check=False
    )
    assert done.returncode == status, done.stderr
    assert [line.split(" (")[0] for line in done.stderr.splitlines()] == said


def test_a_library_that_dies_while_it_is_imported_does_so_silently_in_a_child(tmp_path, monkeypatch, capfd):
    (tmp_path / "dies_on_import.py").write_text("import os\nos.write(2, b'bad_alloc')\nos.kill(os.getpid(), 9)\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert not loads_in_child("dies_on_import")
    assert loads_in_child("wave")
    assert capfd.readouterr() == ("", "")


def test_a_mistake_of_the_program_keeps_its_traceback(monkeypatch):
    from antiphon import cli

    monkeypatch.setattr("sys.argv", ["antiphon", "--version"])
    monkeypatch.setattr(cli, "_run", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        cli.main()


@pytest.mark.parametrize("name", ["[fr]", "[/b]", "[bold]x", ":smile:"])
def test_markup_in_the_name_of_a_run_is_shown_as_it_is(antiphon, tmp_path, monkeypatch, name):
    train, dev = write_pairs(tmp_path / "train.tsv", 5), write_pairs(tmp_path / "dev.tsv", 2)
    settings = ["--set", f"data.train={train}", "--set", f"data.dev={dev}", "--set", "model.kind=suffix_rule"]
    run = tmp_path / name
    trained = antiphon("train", "toy", *settings, "--out", run)
    assert trained.status == 0, trained.err
    assert name in trained.err
    assert antiphon("info", run).status == 0
    monkeypatch.chdir(tmp_path)  # a short path is on one line of the table
    assert name in antiphon("compare", name, name, dev).out


def test_codes_for_terminals_are_escaped(antiphon, tmp_path):
    recipe = write(tmp_path / "recipe.toml", b'[model]\n"\\u001b[2J" = 1\n"a\\nb" = 1\n')
    result = antiphon("train", recipe)
    assert result.status == 2
    assert "\x1b" not in result.err
    assert r"model.\x1b[2J: unknown key" in result.err
    assert r"model.a\nb: unknown key" in result.err
    assert "\x1b" not in antiphon("info", tmp_path / "\x1b[31m").err
    assert "\x1b" not in antiphon("predict", tmp_path, "--\x1b[31m").err


def test_a_message_has_a_bearable_length(antiphon):
    assert len(antiphon("info", "x" * 100_000).err) < 1000


def test_an_empty_argument_is_not_the_current_folder(antiphon):
    assert_refused(antiphon("info", ""), "an empty argument")


def test_the_current_folder_must_be_there(toy_run, tmp_path):
    script = f"mkdir {tmp_path}/gone; cd {tmp_path}/gone; rmdir {tmp_path}/gone; antiphon info $RUN"
    assert_sentence(shell(script, toy_run), "the current folder no longer exists")


def test_progress_that_cannot_be_written_ends_no_training(toy_run, tmp_path):
    settings = "--set train.max_epochs=1 --set model.hidden_size=4"
    done = shell(f"antiphon train toy {settings} --out {tmp_path / 'run'} 2> /dev/full", toy_run)
    assert done.returncode == 0


def test_a_file_that_the_manifest_does_not_list_is_not_read(antiphon, toy_run, tmp_path):
    run = shutil.copytree(toy_run, tmp_path / "run")
    (run / "target.vocab").unlink()
    seal_again(run)
    (run / "target.vocab").symlink_to("/dev/zero")
    assert_refused(antiphon("predict", run), "target.vocab: not listed in")


def test_a_run_is_not_put_among_the_parts_of_another(antiphon, toy_run):
    assert_refused(antiphon("combine", "--direct", toy_run, "--out", toy_run / "lm"), "expected another --out")


def test_a_path_through_a_folder_that_is_not_there_is_refused(antiphon, toy_run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert_refused(antiphon("combine", "--direct", toy_run, "--out", "x/../y"), "goes through a folder that does not")
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_an_unfinished_file_names_what_it_will_be(tmp_path):
    inside = tmp_path / "run" / scratch_name() / "model.safetensors"
    failure = failure_of(OSError(errno.EROFS, "Read-only file system", str(inside)))
    assert failure.message.startswith(f"{tmp_path}/run/model.safetensors: read-only file system, expected a place")
    kept = failure_of(FileNotFoundError(errno.ENOENT, "No such file or directory", "data/pairs.tsv"))
    assert kept.message.startswith("data/pairs.tsv: no such file")
