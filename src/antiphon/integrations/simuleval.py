"""An agent for SimulEval: ``simuleval --agent-class antiphon.integrations.simuleval.AntiphonAgent --run RUN ...``.

SimulEval passes one source word at a time and asks for an action. Every word goes to the stream of its sentence, and
the tokens that the stream writes are written at once; if there are none, the agent reads on. The last word is marked,
so the remaining tokens are written with it: with the same delays that ``antiphon evaluate --online`` computes.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable

from simuleval.agents import Action, AgentStates, ReadAction, TextToTextAgent, WriteAction

from antiphon.api.model import load
from antiphon.torch_free.codec import Chars, SentencePiece, Tokeniser, Words
from antiphon.torch_free.stream_policies import POLICIES
from antiphon.torch_free.streams import Stream

UNITS: dict[type[Tokeniser], str] = {Words: "word", Chars: "char", SentencePiece: "spm"}
"""What SimulEval's ``--eval-latency-unit`` calls each kind of target token."""


class SentenceStates(AgentStates):
    """SimulEval's state of a sentence, with its stream and the tokens written."""

    def __init__(self, start: Callable[[], Stream]) -> None:
        self._start = start
        super().__init__()

    def reset(self) -> None:
        """The next sentence begins."""
        super().reset()
        self.stream = self._start()
        self.words_read, self.words_written = 0, 0
        self.tokens: list[str] = []

    def advance(self) -> list[str]:
        """Reads the new words; the tokens that are now written, with all remaining ones if the source has ended."""
        written = []
        for index in range(self.words_read, len(self.source)):
            written += self.stream.read(" " * (index > 0) + self.source[index])
        self.words_read = len(self.source)
        # An empty source has an empty output, as in ``antiphon predict``: its delay is undefined.
        if self.source_finished and self.source:
            written += self.stream.finish()
        self.tokens += written
        return written


class AntiphonAgent(TextToTextAgent):
    """Writes what a run streams."""

    def __init__(self, args: Namespace) -> None:
        self.model = load(args.run, device=args.device)
        self.tokeniser = self.model.codec.target.tokeniser
        self.unit = getattr(args, "eval_latency_unit", "word")
        super().__init__(args)

    @staticmethod
    def add_args(parser: ArgumentParser) -> None:
        """The options of ``antiphon stream``."""
        parser.add_argument("--run", required=True, help="A run folder.")
        parser.add_argument(
            "--policy",
            choices=POLICIES,
            default="beam",
            help="When to write: greedy, or what all hypotheses of a beam share.",
        )
        parser.add_argument(
            "--emit-bias", type=float, default=0.0, help="Added to the log odds of writing; higher writes sooner."
        )
        parser.add_argument("--beam", type=int, help="Hypotheses kept per cell; unset: as in the recipe.")
        parser.add_argument(
            "--margin",
            type=float,
            help="Policy beam: ignore hypotheses more than this many nats behind the best; unset: as in the recipe.",
        )

    def build_states(self) -> SentenceStates:
        """The state of a new sentence."""
        return SentenceStates(self._start)

    def policy(self, states: SentenceStates | None = None) -> Action:
        """Writes the available tokens, or asks for the next word."""
        states = states or self.states
        text = self._text(states, states.advance())
        if text or states.source_finished:
            return WriteAction(text, finished=states.source_finished)
        return ReadAction()

    def _start(self) -> Stream:
        args = self.args
        return self.model.stream(policy=args.policy, emit_bias=args.emit_bias, beam=args.beam, margin=args.margin)

    def _text(self, states: SentenceStates, tokens: list[str]) -> str:
        """The output as space-separated units of SimulEval: tokens, or complete words."""
        if UNITS[type(self.tokeniser)] == self.unit:
            return " ".join(tokens)
        words = self.tokeniser.join(states.tokens).split(" ")
        whole = words if states.source_finished else words[:-1]
        new, states.words_written = whole[states.words_written :], len(whole)
        return " ".join(new)
