"""``python -m antiphon.lite FOLDER [FILE]``: the best output for every line of input."""

import os
import sys
from argparse import ArgumentParser
from pathlib import Path

from antiphon.api.inputs import PredictOptions
from antiphon.api.lexicon import Lexicon
from antiphon.data.readers import numbered_lines
from antiphon.exceptions import AntiphonError
from antiphon.lite.lite_model import load
from antiphon.terminal import printable


def main() -> int:
    """Predicts every line; a user error prints one sentence on standard error, and the exit status is 2."""
    parser = ArgumentParser("python -m antiphon.lite", description="Write the best output for every line of input.")
    parser.add_argument("folder", type=Path, help="a folder that antiphon export wrote")
    parser.add_argument("file", type=Path, nargs="?", default=Path("-"), help="one input per line; - is standard input")
    parser.add_argument("--beam", type=int, help="beam size; default: that of the run")
    parser.add_argument("--nbest", type=int, help="outputs per input, each on its own line with number and probability")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    given = parser.parse_args()
    try:
        predict(given.folder, given.file, given.beam, given.nbest, as_json=given.json)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing is left to write at exit
    except (AntiphonError, OSError) as error:
        print(printable(f"antiphon.lite: {error}"), file=sys.stderr)
        return 2
    return 0


def predict(folder: Path, file: Path, beam: int | None, nbest: int | None, *, as_json: bool) -> None:
    """Prints the predictions for every line of a file."""
    model = load(folder)
    options = PredictOptions(beam, 1 if nbest is None else nbest, align=as_json)
    sources = model.read_sources(*numbered_lines(file), options, Lexicon(model.codec))
    for number, prediction in enumerate(model.predict_lazily(sources, options), 1):
        for line in prediction.lines(number, as_json=as_json, as_list=nbest is not None):
            print(line)


if __name__ == "__main__":
    sys.exit(main())
