import math

import pytest
import torch

from antiphon.decode.beam_search import search_outputs
from antiphon.models.left_to_right import output_scorer, token_log_probs
from antiphon.torch_free.suffix_rule import (
    HeldOutAnswers,
    add_rules,
    as_answer,
    draw_rules,
    fit_weight,
    held_out_answers,
    mix_log_prob,
)
from antiphon.torch_free.vocab import END, UNKNOWN
from tests.decode.small_models import batch_of, every_output, pair, small_model, sources
from tests.networks import beam_settings

WIDE = beam_settings(beam=200, nbest=6, threshold=float("inf"), max_length_ratio=0.0, max_length_extra=4)
RULE = (5, 4, END)


@pytest.mark.parametrize("name", ["transducer", "copying", "attention", "encoder_decoder", "transformer"])
@torch.no_grad()
def test_token_probabilities_multiply_to_that_of_the_output(name):
    model, (source,) = small_model(name), sources(4)
    batch = pair(source, (4, 5, 5))
    (log_probs,) = token_log_probs(model, batch)
    assert len(log_probs) == 4
    assert sum(log_probs) == pytest.approx(model.log_prob(batch).item(), abs=1e-9)


@pytest.mark.parametrize("weight", [0.0, 0.2, 0.7, 1.0])
def test_outputs_of_both_are_ranked_by_the_mixture(weight):
    model, (source,) = small_model(seed=3), sources(3)
    batch = batch_of([source])
    found = add_rules(output_scorer(model, batch), search_outputs(model, batch, WIDE), [RULE], weight, nbest=3)[0]
    listed = [
        ((1 - weight) * math.exp(log_prob) + weight * (tokens == RULE), tokens)
        for _, log_prob, tokens in every_output(model, source, longest=4)
    ]
    best = sorted(listed, reverse=True)[:3]
    assert [math.exp(each.log_prob) for each in found] == pytest.approx([p for p, _ in best], abs=1e-12)
    assert found[0].tokens == best[0][1]
    for each in found:
        if each.log_prob > -math.inf:
            assert sum(each.token_log_probs) == pytest.approx(each.log_prob, abs=1e-9)
            assert max(each.token_log_probs) < 1e-9


def test_the_rules_answer_is_added_where_the_search_did_not_find_it():
    model, (source,) = small_model(seed=3), sources(3)
    batch = batch_of([source])
    greedy = search_outputs(model, batch, beam_settings(beam=1))
    assert greedy[0][0].tokens != RULE
    (found,) = add_rules(output_scorer(model, batch), greedy, [RULE], 0.9, nbest=2)
    alone = model.log_prob(pair(source, RULE[:-1])).item()
    assert found[0].tokens == RULE
    assert found[0].log_prob == pytest.approx(mix_log_prob(alone, 0.9, is_answer=True))
    assert found[1].log_prob == pytest.approx(math.log(0.1) + greedy[0][0].log_prob)


def test_an_answer_that_the_network_cannot_write_is_none():
    assert as_answer([4, UNKNOWN], copies_unknown=False) == ()
    assert as_answer([4, UNKNOWN], copies_unknown=True) == (4, UNKNOWN, END)
    model, (source,) = small_model(), sources(3)
    batch = batch_of([source])
    found = search_outputs(model, batch, WIDE)
    (mixed,) = add_rules(output_scorer(model, batch), found, [()], 0.25, nbest=6)
    assert [each.tokens for each in mixed] == [each.tokens for each in found[0]]


def test_samples_become_the_rules_answer_as_often_as_they_weigh():
    model, (source,) = small_model(seed=3), sources(3)
    batch = batch_of([source])
    (best,) = search_outputs(model, batch, beam_settings(beam=1))
    (drawn,) = draw_rules(output_scorer(model, batch), [best * 1000], [RULE], 0.3, seed=1)
    assert 250 < sum(each.tokens == RULE for each in drawn) < 350


def right(network, rule, network_log_prob=0.0, rule_log_prob=-math.inf):
    return HeldOutAnswers(network_log_prob, rule_log_prob, network, rule)


def test_the_weight_takes_the_rules_where_the_network_is_unsure():
    unsure = [right(False, True, math.log(0.3), math.log(0.1))] * 3  # rules win from 1/6 on
    sure = [right(True, False, math.log(0.9))] * 4  # and here from 9/19 on
    weight = fit_weight([*unsure, *sure])
    assert 1 / 6 < weight < 9 / 19
    assert fit_weight(unsure) > 1 / 6
    assert fit_weight(sure) == 0.0
    assert fit_weight([right(True, True)]) == 0.0


def test_rules_alone_are_taken_if_they_are_always_better():
    rivals = [right(False, True)] * 5 + [right(True, False, math.log(0.2))]
    assert fit_weight(rivals) > 0.5


def test_what_a_search_missed_wins_with_any_weight():
    missed = right(False, True, math.log(0.1), math.log(0.6))
    assert missed.break_even == 0.0
    assert 0.0 < fit_weight([missed, right(True, False, math.log(0.9))]) < 9 / 19


def test_rivals_say_who_is_right():
    model, inputs = small_model(seed=3), sources(3, 4)
    batch = batch_of(inputs)
    found = search_outputs(model, batch, beam_settings(beam=4))
    wanted = [found[0][0].tokens, RULE]
    one, other = held_out_answers(output_scorer(model, batch), found, [RULE, RULE], wanted)
    assert (one.is_right, one.rule_is_right) == (True, False)
    assert other.rule_is_right
    assert one.log_prob == found[0][0].log_prob
    assert one.rule_log_prob == pytest.approx(model.log_prob(pair(inputs[0], RULE[:-1])).item())
