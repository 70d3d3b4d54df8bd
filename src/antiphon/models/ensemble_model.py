"""An ensemble: averages the next-token probabilities of several models.

    p(y_j | y_1..y_{j-1}, x) = mean over members m of  p_m(y_j | y_1..y_{j-1}, x)

Members may be of any kind that predicts token by token.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import pad

from antiphon.data.batch import Batch
from antiphon.lattice.paths import IMPOSSIBLE
from antiphon.models.left_to_right import LeftToRight, token_log_probs
from antiphon.models.transducer import Transducer
from antiphon.nn.copying import copies_as_unknown

M = TypeVar("M", bound=nn.Module)


class MemberIds(NamedTuple):
    """Maps from the ensemble's ids of source tokens, target tokens and features to those of a member."""

    source: Int[Tensor, " S"]
    target: Int[Tensor, " V"]
    features: Int[Tensor, " F"]


class Ensemble(LeftToRight):
    """Models with the same target tokens, whose ids may differ.

    ``ids[m]`` map the ids of the ensemble to those of member ``m``.
    """

    def __init__(self, members: Sequence[nn.Module], ids: Sequence[MemberIds]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        for m, tables in enumerate(ids):
            for name, table in tables._asdict().items():
                self.register_buffer(f"{name}_ids_{m}", table)
        self.copies_unknown = any(member.copies_unknown for member in self._models)
        self.state_grows = any(member.state_grows for member in self._models)

    @property
    def _models(self) -> list[LeftToRight]:
        return cast(list[LeftToRight], list(self.members))

    def start(self, batch: Batch) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Memory and state of every member."""
        started = [member.start(self._batch_of(m, batch)) for m, member in enumerate(self._models)]
        return tuple(memory for memory, _ in started), tuple(state for _, state in started)

    def reserve(self, state: tuple[Any, ...], length: int) -> tuple[Any, ...]:
        """The states with room for prefixes of a length."""
        return tuple(member.reserve(each, length) for member, each in zip(self._models, state, strict=True))

    def member_of(self, kind: type[M], batch: Batch) -> tuple[M, Batch] | None:
        """The first member of a kind and the batch in its ids, or None; a member that copies goes first."""
        m = self.first_of(kind)
        return None if m is None else (cast(M, self.members[m]), self._batch_of(m, batch))

    def first_of(self, kind: type[nn.Module]) -> int | None:
        """The index of that member."""
        models = self._models
        members = [m for m, member in enumerate(models) if isinstance(member, kind)]
        return min(members, key=lambda m: not (models[m].copies_unknown or models[m].copies_words), default=None)

    def given_to(
        self, m: int, memory: tuple[Any, ...], state: tuple[Any, ...], tokens: Int[Tensor, " N"], *rest: Any
    ) -> tuple[Any, ...]:
        """What ``step`` of a member is given: its own memory and state, the tokens in its ids, and the rest."""
        return memory[m], state[m], self._target_ids(m, tokens), *rest

    def _batch_of(self, m: int, batch: Batch) -> Batch:
        """A batch in the ids of a member."""
        source, features = (self._ids(name, m)[getattr(batch, name)] for name in ("source", "features"))
        target, copied = (self._target_ids(m, tokens) for tokens in (batch.target, batch.copied))
        return batch._replace(source=source, target=target, features=features, copied=copied)

    def _target_ids(self, m: int, tokens: Int[Tensor, "..."]) -> Int[Tensor, "..."]:
        """Target ids of a member; copied words, and ``NOT_COPIED``, have the same ids in all members."""
        ids = self._ids("target", m)
        if not self._models[m].copies_words:
            return ids[copies_as_unknown(tokens, len(ids)).clamp(min=0)]
        return torch.where((tokens >= 0) & (tokens < len(ids)), ids[tokens.clamp(0, len(ids) - 1)], tokens)

    def step(
        self, memory: tuple[Any, ...], state: tuple[Any, ...], tokens: Int[Tensor, " N"], sentence: Int[Tensor, " N"]
    ) -> tuple[Float[Tensor, "N V"], tuple[Any, ...]]:
        """Log probabilities of the token after these, and the states to continue from."""
        given = memory, state, tokens, sentence
        steps = [member.step(*self.given_to(m, *given)) for m, member in enumerate(self._models)]
        return self.average([log_next for log_next, _ in steps]), tuple(after for _, after in steps)

    def average(self, log_next: Sequence[Tensor]) -> Float[Tensor, "N V"]:
        """The mean of what all members give, each in its own ids."""
        ids = [self._ids("target", m) for m in range(len(log_next))]
        ours = [
            torch.cat([each.index_select(1, i), each[:, len(i) :]], 1) for each, i in zip(log_next, ids, strict=True)
        ]
        width = max(each.shape[1] for each in ours)
        stacked = torch.stack([pad(each, (0, width - each.shape[1]), value=IMPOSSIBLE) for each in ours])
        return stacked.logsumexp(0) - math.log(len(stacked))

    @property
    def twin(self) -> "Ensemble | None":
        """The ensemble of the members' right-to-left twins, if each has one."""
        twins = [member.twin for member in self._models]
        if None in twins:
            return None
        ids = [MemberIds(*(self._ids(name, m) for name in MemberIds._fields)) for m in range(len(twins))]
        return Ensemble(twins, ids)

    def log_prob(self, batch: Batch) -> Float[Tensor, " B"]:
        """``log p(y | x)`` of each pair, token by token; with twins, the mean of both directions."""
        forward, twin = token_log_probs(self, batch).sum(1), self.twin
        if twin is None:
            return forward
        return torch.logaddexp(forward, token_log_probs(twin, batch.reversed()).sum(1)) - math.log(2)

    def log_rows(
        self,
        memory: tuple[Any, ...],
        state: tuple[Any, ...],
        parent: Int[Tensor, " N"],
        tokens: Int[Tensor, " N"],
        sentence: Int[Tensor, " N"],
    ) -> Float[Tensor, "N I"]:
        """Log probabilities of the input position of one more token: the mean of the transducers among the members."""
        given = [
            (member, memory[m], state[m], self._target_ids(m, tokens))
            for m, member in enumerate(self.members)
            if isinstance(member, Transducer)
        ]
        rows = [member.log_rows(own, before, parent, ids, sentence) for member, own, before, ids in given]
        return torch.stack(rows).logsumexp(0) - math.log(len(rows))

    def _ids(self, side: str, member: int) -> Tensor:
        return cast(Tensor, getattr(self, f"{side}_ids_{member}"))
