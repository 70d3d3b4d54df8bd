"""A command of antiphon with other constants: what an ablation of something that is no setting runs.

``python -m experiments.changed_constants antiphon.nn.recurrent._EMBEDDING_STD=0.06 train g2p ...``
"""

import json
import re
import sys
from importlib import import_module

from antiphon.__main__ import main
from antiphon.exceptions import AntiphonError

_CHANGE = re.compile(r"(antiphon[.\w]*)\.(\w+)=(.+)")


def change(text: str) -> None:
    """Gives a constant of a module another number, as in ``antiphon.nn.recurrent._EMBEDDING_STD=0.06``."""
    found = _CHANGE.fullmatch(text)
    assert found is not None
    module, name, value = import_module(found[1]), found[2], json.loads(found[3])
    if not hasattr(module, name):
        raise AntiphonError(f"{found[1]}: no constant {name}")
    setattr(module, name, value)


if __name__ == "__main__":
    while _CHANGE.fullmatch(sys.argv[1]):
        change(sys.argv.pop(1))
    main()
