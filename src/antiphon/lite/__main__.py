"""``python -m antiphon.lite FOLDER [FILE]``: the best output for every line of input."""

import sys
from argparse import Namespace
from functools import partial
from pathlib import Path

from antiphon.lite.model import load
from antiphon.terminal import OneSentenceParser, exit_status
from antiphon.torch_free.inputs import PredictOptions
from antiphon.torch_free.readers import numbered_lines
from antiphon.torch_free.results import Lexicon


def main() -> int:
    """Predicts every line; a user error prints one sentence on standard error, and the exit status is 2."""
    parser = OneSentenceParser("python -m antiphon.lite", description="Write the best output for every line of input.")
    parser.add_argument(
        "folder", type=Path, help="a folder that antiphon export wrote, or en: the English model of the package"
    )
    parser.add_argument("file", type=Path, nargs="?", default=Path("-"), help="one input per line; - is standard input")
    parser.add_argument("--beam", type=int, help="beam size; default: that of the run")
    parser.add_argument("--nbest", type=int, help="outputs per input, each on its own line with number and probability")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument("--allow-unknown-features", action="store_true", help="read features never seen as unknown")
    given = parser.parse_args()
    return exit_status("antiphon.lite", partial(predict, given))


def predict(given: Namespace) -> None:
    """Prints the predictions for every line of a file."""
    model = load(given.folder)
    nbest, unknown = 1 if given.nbest is None else given.nbest, given.allow_unknown_features
    options = PredictOptions(given.beam, nbest, align=given.json, allow_unknown_features=unknown)
    sources = model.read_sources(*numbered_lines(given.file), options, Lexicon(model.codec))
    for number, prediction in enumerate(model.predict_lazily(sources, options), 1):
        for line in prediction.lines(number, as_json=given.json, as_list=given.nbest is not None):
            print(line)


if __name__ == "__main__":
    sys.exit(main())
