"""Listed outputs: inputs in a lexicon need no model."""

from collections.abc import Iterable, Sequence

from antiphon.torch_free.codec import PairCodec
from antiphon.torch_free.readers import Source

Key = tuple[tuple[str, ...], tuple[str, ...]]


class Lexicon:
    """The listed outputs of each input, best first.

    Inputs are compared as the model reads them: normalised, as tokens, and with their features.
    """

    def __init__(self, codec: PairCodec, pairs: Iterable[tuple[Source, str]] = ()) -> None:
        self._codec = codec
        self._outputs: dict[Key, list[str]] = {}
        for source, output in pairs:
            listed = self._outputs.setdefault(self._key(source), [])
            if output not in listed:
                listed.append(output)

    def __len__(self) -> int:
        return len(self._outputs)

    def __contains__(self, source: Source) -> bool:
        return bool(self.outputs(source))

    def outputs(self, source: Source) -> Sequence[str]:
        """The listed outputs of an input; none if it is not listed or blank."""
        return self._outputs.get(self._key(source), ()) if self._outputs and source.text.strip() else ()

    def _key(self, source: Source) -> Key:
        return (
            tuple(self._codec.source.tokens(source.text)),
            tuple(sorted(set(source.features))),
        )
