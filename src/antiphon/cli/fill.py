"""``antiphon fill``: a pronunciation lexicon for given words, from one's own lexicon."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from antiphon.cli.options import Beam, Device, Threads, check_new, load_predicting_run
from antiphon.cli.predict import Cover, NBest
from antiphon.exceptions import InputError
from antiphon.storage.files import write_atomically
from antiphon.storage.manifest import holds_run
from antiphon.terminal import count_of, duration, print_note
from antiphon.torch_free.readers import numbered_lines

if TYPE_CHECKING:
    from antiphon.api.model import Model
    from antiphon.pronunciation.filling import Filled
    from antiphon.pronunciation.lexicon_files import LexiconFormat, PronunciationLexicon

Lexicon = Annotated[Path, typer.Argument(metavar="LEXICON", help="A pronunciation lexicon.")]
Words = Annotated[Path, typer.Argument(metavar="WORDS", help="One word per line; - is standard input.")]
Out = Annotated[Path, typer.Option(metavar="LEXICON", help="Where to write the lexicon of these words.")]
Minutes = Annotated[
    float | None,
    typer.Option(metavar="M", min=0, help="Minutes that training may take; default: 1 to 10, by the lexicon."),
]
RunFolderOption = Annotated[
    Path | None,
    typer.Option(
        "--run", metavar="RUN", help="Keep the trained model in this folder; if it is there already, train none."
    ),
]
InFormat = Annotated[
    str | None, typer.Option("--format", metavar="NAME", help="Format of LEXICON; default: recognised by its lines.")
]
OutFormat = Annotated[
    str | None, typer.Option("--to", metavar="NAME", help="Format of the new lexicon; default: that of LEXICON.")
]
Report = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Also write word, origin, probability and phonemes of every reading, as TSV."),
]
Force = Annotated[bool, typer.Option("--force", help="Replace the new lexicon, if there is one.")]
_WORDS_PER_MINUTE = 2000
"""Words of a lexicon for each minute of training, between one and ten minutes."""


def fill(
    lexicon: Lexicon,
    words: Words,
    out: Out,
    nbest: NBest = None,
    cover: Cover = None,
    minutes: Minutes = None,
    run: RunFolderOption = None,
    format: InFormat = None,
    to: OutFormat = None,
    report: Report = None,
    force: Force = False,
    beam: Beam = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Write a pronunciation lexicon for words, learnt from your own.

    Words that LEXICON lists keep their readings. All others are read by a model that
    is trained on LEXICON, with no symbol that LEXICON lacks; --cover .95 gives the
    readings whose probabilities add up to .95. Formats with probabilities get them,
    divided by that of the best reading of a word; --report has them as they are.

    Formats: cmudict, wikipron, mfa (Montreal Forced Aligner), kaldi (lexicon.txt,
    also of sherpa-onnx) and kaldi-p (lexiconp.txt). A format is recognised.

    Examples:
      antiphon fill my.dict words.txt --out new.dict
      antiphon fill my.dict words.txt --out new.txt --to kaldi-p --cover .95
    """
    from antiphon.pronunciation.filling import LexiconLookup
    from antiphon.pronunciation.filling import fill as fill_words
    from antiphon.pronunciation.lexicon_files import format_named, read_lexicon

    for path in (out, report):
        check_new(path, force=force)
    refuse_same_file(out, lexicon, words, *([] if report is None else [report]))
    refuse_same_file(report, lexicon, words)
    after = format_named(to) if to else None
    listed, wanted = read_lexicon(lexicon, format), read_words(words)
    lookup = LexiconLookup(listed)
    missing = list(dict.fromkeys(lookup.as_listed(word) for word in wanted if not lookup.find(word)))
    print_note(
        f"{lexicon}: {count_of(len(listed.entries), 'entry').replace('entrys', 'entries')} in the format of "
        f"{listed.format.name}, {count_of(len(listed.symbols), 'symbol')}; it lacks {count_of(len(missing), 'word')}"
    )
    predictions: dict[str, Any] = {}
    if missing:
        with TemporaryDirectory(prefix="antiphon-fill-") as folder:
            model = trained(listed, run or Path(folder) / "run", minutes, device, threads)
            read = model.predict(missing, nbest=nbest, cover=cover, beam=beam, align=False)
            predictions = dict(zip(missing, read, strict=True))
    filled = list(fill_words(wanted, listed, predictions))
    form = after or listed.format
    write([each for each in filled if form.can_hold(each.word)], listed, form, out, report)
    note_unknown(filled)
    note_unwritten(filled, form)


def refuse_same_file(written: Path | None, *others: Path) -> None:
    """Refuses to write a file over another one of the command."""
    for other in others:
        if written is not None and (
            written == other or (written.exists() and other.exists() and written.samefile(other))
        ):
            raise InputError(f"{written}: given twice, expected different files")


def read_words(path: Path) -> list[str]:
    """The words of a file, each once."""
    lines, _ = numbered_lines(path)
    return list(dict.fromkeys(line.strip() for _, line in lines if line.strip()))


def trained(
    lexicon: "PronunciationLexicon", run: Path, minutes: float | None, device: str, threads: int | None
) -> "Model":
    """The model in a run folder, or one that is trained on the lexicon and stored there."""
    from antiphon.api.train_recipe import train
    from antiphon.pronunciation.filling import training_pairs

    if holds_run(run):
        return load_predicting_run(run, device, threads)
    pairs, dev = training_pairs(lexicon)
    minutes = minutes or min(10, max(1, len(pairs) / _WORDS_PER_MINUTE))
    time = duration(60 * minutes)
    print_note(f"training on {count_of(len(pairs), 'reading')} takes about {time} minutes at most (--minutes)")
    settings = {"train.minutes": minutes, "model.copy_unknown": False}
    model = train(
        "g2p", run, settings=settings, train_pairs=pairs, dev_pairs=dev, device=device, threads=threads, progress=True
    )
    print_note(f"about {model.evaluate(dev).metrics['accuracy'].value:.3g} % of unseen words are read as listed")
    return model


def write(filled: "list[Filled]", lexicon: "PronunciationLexicon", after: Any, out: Path, report: Path | None) -> None:
    """Writes the new lexicon, and the report if there is one."""
    from antiphon.pronunciation.filling import entries_for

    lines = after.write(entries_for(filled, lexicon.format, after))
    write_atomically(out, "".join(f"{line}\n" for line in lines))
    if report is not None:
        write_atomically(report, "".join(f"{row}\n" for each in filled for row in each.rows()))
    counts = {origin: sum(each.origin == origin for each in filled) for origin in ("lexicon", "model")}
    print_note(f"{out}: {counts['lexicon']:,} words from the lexicon, {counts['model']:,} by the model")


def note_unknown(filled: "list[Filled]") -> None:
    """Names words that got no reading."""
    unknown = [each.word for each in filled if not each.entries]
    if unknown:
        shown = ", ".join(map(repr, unknown[:3]))
        print_note(
            f"no reading for {count_of(len(unknown), 'word')} such as {shown}, expected letters that the lexicon has; "
            "the new lexicon is without them"
        )


def note_unwritten(filled: "list[Filled]", form: "LexiconFormat") -> None:
    """Names words that the format cannot hold."""
    words = [each.word for each in filled if each.entries and not form.can_hold(each.word)]
    if words:
        print_note(
            f"{count_of(len(words), 'word')} with spaces such as {words[0]!r}, which {form.name} cannot hold; "
            "the new lexicon is without them"
        )
