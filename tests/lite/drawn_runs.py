"""Run folders of untrained networks with pronounced preferences: quick to make, and their outputs are varied."""

import torch

from antiphon.recipe.schema import Recipe
from antiphon.runs.build import build_model
from antiphon.runs.run_folder import RunFolder
from antiphon.storage.manifest import seal_run
from antiphon.torch_free.suffix_rule import SuffixRules
from antiphon.torch_free.vocab import Vocab
from tests.networks import enlarge

LETTERS, PHONEMES = "abcdefgh", ["A", "B", "K", "D", "E", "F"]
WORDS = [f"w{n}" for n in range(12)]
FEATURES = ["N", "V", "PL", "SG"]
SMALL = {"hidden_size": 12, "embedding_size": 8, "dropout": 0.0}
BETWEEN_WORDS = {"source_tokens": "words", "target_tokens": "words"}
INFLECTION = {"source_tokens": "chars", "target_tokens": "chars", "features": True}
KINDS = {
    "transducer": {"model": {"layers": 2}},
    "unidirectional": {"model": {"encoder": "unidirectional"}},
    "geometric": {"model": {"transition": "geometric", "final_write": "forced"}},
    "inflection": {"data": INFLECTION, "model": {"copy_unknown": True, "encoder": "unidirectional"}},
    "rules_beside": {"data": INFLECTION, "model": {"copy_unknown": True}, "search": {"rule_weight": 0.3}},
    "two_ways": {"model": {"right_to_left": True}},
    "two_ways_with_rules": {
        "data": INFLECTION,
        "model": {"right_to_left": True, "copy_unknown": True},
        "search": {"rule_weight": 0.3, "length_normalisation": 0.7},
    },
    "context": {"model": {"context": "attention"}, "search": {"length_normalisation": 0.7, "length_bias": 0.2}},
    "copied_words": {"data": BETWEEN_WORDS, "model": {"copy_words": True, "copy_unknown": True}},
    "copied_words_online": {"data": BETWEEN_WORDS, "model": {"copy_words": True, "encoder": "unidirectional"}},
    "attention": {"model": {"kind": "attention"}},
    "attention_between_words": {"data": BETWEEN_WORDS, "model": {"kind": "attention"}},
    "encoder_decoder": {"data": INFLECTION, "model": {"kind": "encoder_decoder", "layers": 2}},
    "transformer": {
        "data": INFLECTION,
        "model": {"kind": "transformer", "heads": 2, "layers": 2, "embedding_size": None},
        "scale": 1.5,
    },
    "language_model": {"model": {"kind": "language_model"}},
    "suffix_rule": {"data": INFLECTION, "model": {"kind": "suffix_rule"}},
}
"""What each run has besides the defaults: letters to phonemes by a transducer, weights four times as large as drawn."""
PREDICTING = [name for name in KINDS if name not in ("language_model", "suffix_rule")]
STREAMING = ["unidirectional", "inflection", "copied_words_online"]
TEXTS = ["a", "fade", "hgfedcba", "beg cab", "xyzzy", "abcdefgh" * 8, ""]
SENTENCES = ["w1", "w3 w3 w0", "w2 unseen w2 other unseen", "w11 w4 w5 w6", " ".join(WORDS * 5)]


def write_run(folder, name, *, seed=0, **data):
    """A run folder of a kind with drawn weights."""
    settings = KINDS[name]
    recipe = drawn_recipe({**settings, "data": {**settings.get("data", {}), **data}})
    run = RunFolder(folder)
    folder.mkdir(parents=True)
    source, target = (vocabulary(kind) for kind in token_kinds(recipe.data))
    run.save_recipe(recipe)
    run.save_vocabs(source, target, Vocab(FEATURES if recipe.data.features else ()))
    if recipe.model.kind != "suffix_rule":
        run.save_weights(drawn_weights(recipe, run, seed, settings.get("scale", 4.0)))
    if recipe.search.rule_weight or recipe.model.kind == "suffix_rule":
        SuffixRules.learn([("fade", "fadeh", ("N", "PL")), ("cab", "cbb", ("V",)), ("beg", "begbeg", ())]).save(
            run.rules
        )
    seal_run(folder)
    return folder


def drawn_recipe(settings):
    data = {"train": "train.tsv", "dev": "dev.tsv", "source_tokens": "chars", "target_tokens": "words"}
    model = {"kind": "transducer", **settings["model"]}
    if model["kind"] != "suffix_rule":
        model = {key: value for key, value in (SMALL | model).items() if value is not None}
    search = {"beam": 5, "batch_size": 4, **settings.get("search", {})}
    return Recipe.model_validate({"data": data | settings["data"], "model": model, "search": search})


def token_kinds(data):
    columns = [data.source_tokens, data.target_tokens]
    return columns[::-1] if data.swap else columns


def vocabulary(kind):
    return {"chars": Vocab(LETTERS), "words": Vocab(PHONEMES + WORDS)}[kind]


def drawn_weights(recipe, run, seed, scale):
    torch.manual_seed(seed)
    model = build_model(recipe.model, run.codec(recipe))
    return enlarge(model, scale).state_dict()


def inputs(name):
    """Inputs for a run of this kind, with features if it reads any."""
    data = KINDS[name].get("data", {})
    if data is BETWEEN_WORDS:
        return SENTENCES
    if data is INFLECTION:
        features = ["N;PL", "V", "", "SG;N"]
        return [(text, features[index % 4]) for index, text in enumerate(TEXTS)]
    return TEXTS
