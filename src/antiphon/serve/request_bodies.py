"""What requests carry, with examples; unknown keys and wrong types are refused."""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FiniteFloat

from antiphon.torch_free.inputs import MAX_BIAS


def check_characters(text: str) -> str:
    """The text, if it can be written as UTF-8; lone surrogates, which JSON escapes can express, are refused."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("half of a character (a lone surrogate), expected whole ones") from None
    return text


Text = Annotated[str, AfterValidator(check_characters)]
Count = Annotated[int, Field(ge=1, le=1000)]
EmitBias = Annotated[FiniteFloat, Field(ge=-MAX_BIAS, le=MAX_BIAS)]
RunName = Annotated[
    Text, Field(description="Name of a run, as GET /api/runs lists it; where only one is served, it may be left out.")
]
Features = Annotated[Text, Field(description="Features such as N;DAT;PL, where the run reads them.")]
Prefix = Annotated[list[Text], Field(description="Tokens that every output must begin with.")]


class Body(BaseModel):
    """A JSON object with known keys."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @property
    def item_count(self) -> int:
        """The number of inputs, pairs, sentences or texts that a request carries; 1 if it carries a single input."""
        given = [getattr(self, name, None) for name in ("inputs", "pairs", "sentences", "texts")]
        return next((len(items) for items in given if items is not None), 1)


class TextInput(Body):
    """An input with its features."""

    text: Text
    features: Features = ""


class PairInput(Body):
    """A source with its target; a language model needs no source."""

    source: Text = ""
    target: Text
    features: Features = ""


def _example(**keys: Any) -> ConfigDict:
    return ConfigDict(extra="forbid", strict=True, json_schema_extra={"example": keys})


class PredictBody(Body):
    """Inputs to predict."""

    model_config = _example(run="demo", inputs=["knight", "phoneme"], nbest=2)
    run: RunName = ""
    inputs: list[Text | TextInput] = Field(description="Texts, or texts with features.")
    nbest: Count | None = Field(
        default=None, description="Maximum number of candidates per input; null: 1, with cover as many as allowed."
    )
    beam: Count | None = Field(default=None, description="Beam size; null: that of the recipe.")
    cover: FiniteFloat | None = Field(
        default=None, gt=0, le=1, description="Fewest candidates whose probabilities add up to this."
    )
    align: bool = Field(default=True, description="Whether candidates have rows.")
    allow_unknown_features: bool = False
    prefix: Prefix = []


class ScoreBody(Body):
    """Pairs to score."""

    model_config = _example(run="demo", pairs=[{"source": "knight", "target": "N AY T"}])
    run: RunName = ""
    pairs: list[PairInput]


class AlignBody(ScoreBody):
    """Pairs to align."""


class RankBody(Body):
    """A question and sentences to rank."""

    model_config = _example(run="answers", question="which colour ?", sentences=["the house was red", "the owl"])
    run: RunName = ""
    question: Text
    sentences: list[Text]
    explain: bool = Field(default=False, description="Whether sentences have the attention weights of their words.")


class TokensBody(Body):
    """Texts whose tokens a language model scores."""

    model_config = _example(run="lm", texts=["knight"], top=5)
    run: RunName = ""
    texts: list[Text]
    features: Features = ""
    top: Annotated[int, Field(ge=0, le=100)] = 5


class LatticeBody(Body):
    """An input whose lattice is shown."""

    model_config = _example(run="demo", input="knight", ended=True, nbest=8, top=5)
    run: RunName = ""
    input: Text
    features: Features = ""
    ended: bool = Field(default=True, description="False: more input may follow.")
    prefix: Prefix = []
    target: list[Text] | None = Field(default=None, description="Tokens of the output to show; null: the best.")
    nbest: Annotated[int, Field(ge=1, le=100)] = 8
    emit_bias: EmitBias = 0.0
    top: Annotated[int, Field(ge=1, le=100)] = 5


class CellBody(Body):
    """One cell of a lattice."""

    model_config = _example(run="demo", input="knight", target=["N", "AY", "T"], row=3, column=2)
    run: RunName = ""
    input: Text
    features: Features = ""
    ended: bool = True
    emit_bias: EmitBias = 0.0
    target: list[Text] = Field(description="Tokens of the columns, without the end symbol.")
    row: Annotated[int, Field(ge=0)]
    column: Annotated[int, Field(ge=0)]
    top: Annotated[int, Field(ge=1, le=100)] = 5


class StreamStart(Body):
    """Options of a stream: the events ``start`` and ``reset`` of the socket."""

    run: RunName = ""
    policy: Annotated[str, Field(pattern="^(greedy|beam)$")] = "beam"
    emit_bias: EmitBias = 0.0
    beam: Count | None = None
    margin: Annotated[FiniteFloat, Field(ge=0, le=1e6)] | None = None
    features: Features = ""
    prefix: Prefix = []
    watch: bool = False
