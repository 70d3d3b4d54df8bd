"""Writes the small files of the tutorials beside this script: ``python docs/data/make_data.py``.

Latin nouns with their forms (those of ``FOURTH`` look like others in -us, but inflect differently); French sentences of
a small grammar with their translations; made-up news with their headlines; questions with candidate answers, and word
vectors in which words of one sort lie close together.
"""

import random
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from pathlib import Path

FOLDER = Path(__file__).parent
CASES = ("NOM", "GEN", "DAT", "ACC", "ABL")
ENDINGS = {
    "a": (("a", "ae", "ae", "am", "a"), ("ae", "arum", "is", "as", "is")),
    "us": (("us", "i", "o", "um", "o"), ("i", "orum", "is", "os", "is")),
    "um": (("um", "i", "o", "um", "o"), ("a", "orum", "is", "a", "is")),
    "us4": (("us", "us", "ui", "um", "u"), ("us", "uum", "ibus", "us", "ibus")),
    "or": (("or", "oris", "ori", "orem", "ore"), ("ores", "orum", "oribus", "ores", "oribus")),
    "io": (("io", "ionis", "ioni", "ionem", "ione"), ("iones", "ionum", "ionibus", "iones", "ionibus")),
}
NOUNS = """
puella silva aqua terra porta via vita luna stella mensa epistula patria fabula insula regina rosa lingua fortuna
pugna memoria cura causa hora ripa statua tabula turba victoria villa umbra amica ala arca cena copia culpa forma
dominus amicus servus hortus lupus equus campus murus populus animus annus oculus modus numerus locus ventus
gladius nuntius socius filius medicus discipulus cibus digitus deus radius avus asinus
bellum donum templum oppidum verbum regnum caelum periculum consilium imperium auxilium signum vinum ferrum aurum
argentum factum officium praemium proelium spatium studium tectum vitium forum folium ovum
labor amor dolor timor honor color clamor error terror vapor odor sudor furor horror pudor rumor tumor umor vigor
oratio ratio natio actio regio legio opinio religio quaestio mansio lectio auctio conventio ambitio sessio passio
""".split()
FOURTH = """
manus fructus exercitus senatus cursus sensus casus gradus spiritus usus currus motus cultus habitus vultus
""".split()
LE, LA = ("le", "un", "ce"), ("la", "une", "cette")
THE = ("the", "a", "this")
ANIMALS = {"chat": "cat", "chien": "dog", "cheval": "horse", "lion": "lion", "canard": "duck", "loup": "wolf"}
PEOPLE = {
    "fille": "girl",
    "femme": "woman",
    "reine": "queen",
    "voisine": "neighbour",
    "vache": "cow",
    "souris": "mouse",
}
THINGS = {"poire": "pear", "maison": "house", "clef": "key", "fleur": "flower", "lettre": "letter", "table": "table"}
COLOURS = {"noir": "black", "petit": "small", "grand": "tall", "gris": "grey", "content": "happy", "lent": "slow"}
FEMININE = {
    "noir": "noire",
    "petit": "petite",
    "grand": "grande",
    "gris": "grise",
    "content": "contente",
    "lent": "lente",
}
BEFORE = ("petit", "grand")
VERBS = {"voit": "sees", "mange": "eats", "aime": "likes", "cherche": "seeks", "porte": "carries", "trouve": "finds"}
NAMES = ("acme", "globex", "initech", "umbra", "vega motors", "north bank")
ACTIONS = ("open", "close", "sell", "buy", "build", "repair")
PLACES = ("factory", "office", "shop", "school", "bridge", "hotel")
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday")
CITIES = ("oslo", "rome", "paris", "cairo", "lima", "kyoto")
TAILS = (", officials said", "after months of talks", ", according to local media", "despite rising costs", "")
ANSWERS = {
    "where": ("oslo", "rome", "paris", "cairo", "lima", "kyoto", "athens", "dublin"),
    "who": ("shakespeare", "homer", "dante", "goethe", "austen", "tolstoy", "sappho", "hugo"),
    "when": ("monday", "tuesday", "friday", "january", "april", "summer", "winter", "yesterday"),
}
ASKED = {"where": "where was {} found ?", "who": "who wrote {} ?", "when": "when did {} begin ?"}
TOPICS = ("hamlet", "the letter", "the story", "the song", "the play", "the map", "the diary", "the poem")
FRAMES = (
    "{topic} is known from {word}",
    "in {word} people still talk about {topic}",
    "the old book says {word} , and little else",
    "{topic} was long forgotten before {word} came",
    "nobody doubts that it was {word}",
)


def latin(nouns: Iterable[str]) -> Iterator[str]:
    """Lines ``noun<TAB>form<TAB>features``: every case in both numbers."""
    for noun in nouns:
        ending = next(each for each in ENDINGS if noun.endswith(each))
        sort = "us4" if noun in FOURTH else ending
        for (number, forms), place in product(zip(("SG", "PL"), ENDINGS[sort], strict=True), range(len(CASES))):
            yield f"{noun}\t{noun.removesuffix(ending)}{forms[place]}\tN;{CASES[place]};{number}"


def french(draw: random.Random) -> str:
    """A French sentence and its translation; most adjectives follow their noun in French."""
    subject, object_ = noun_phrase(draw), noun_phrase(draw)
    verb = draw.choice(list(VERBS))
    return f"{subject[0]} {verb} {object_[0]} .\t{subject[1]} {VERBS[verb]} {object_[1]} ."


def noun_phrase(draw: random.Random) -> tuple[str, str]:
    """A French noun phrase and its translation."""
    nouns = draw.choice((ANIMALS, PEOPLE, THINGS))
    noun, place = draw.choice(list(nouns)), draw.randrange(3)
    article = (LE if nouns is ANIMALS else LA)[place]
    if draw.random() < 0.3:
        return f"{article} {noun}", f"{THE[place]} {nouns[noun]}"
    colour = draw.choice(list(COLOURS))
    adjective = colour if nouns is ANIMALS else FEMININE[colour]
    words = (adjective, noun) if colour in BEFORE else (noun, adjective)
    return f"{article} {' '.join(words)}", f"{THE[place]} {COLOURS[colour]} {nouns[noun]}"


def headline(draw: random.Random) -> str:
    """A sentence of the news and its headline."""
    name, action, place = draw.choice(NAMES), draw.choice(ACTIONS), draw.choice(PLACES)
    day, city, tail = draw.choice(DAYS), draw.choice(CITIES), draw.choice(TAILS)
    size = draw.choice(("a new", "a large", "its oldest", "its last"))
    sentence = f"{name} said on {day} that it will {action} {size} {place} in {city} {tail}".strip()
    return f"{sentence} .\t{name} to {action} {place} in {city}"


def questions(number: int, draw: random.Random) -> Iterator[str]:
    """A header, and lines of questions with four candidates each, of which one answers it."""
    yield "question_id\tquestion\tcandidate_id\tsentence\tlabel"
    for question in range(number):
        wanted, topic = draw.choice(list(ANSWERS)), draw.choice(TOPICS)
        kinds = draw.sample([wanted, *draw.choices([kind for kind in ANSWERS if kind != wanted], k=3)], 4)
        for place, kind in enumerate(kinds):
            sentence = draw.choice(FRAMES).format(topic=topic, word=draw.choice(ANSWERS[kind]))
            row = (
                f"q{question}",
                ASKED[wanted].format(topic),
                f"q{question}-{place}",
                sentence,
                str(int(kind == wanted)),
            )
            yield "\t".join(row)


def vectors(lines: Iterable[str], draw: random.Random) -> Iterator[str]:
    """Lines ``word number number ...`` for every word of questions and sentences."""
    words = {word for line in lines for column in (1, 3) for word in line.split("\t")[column].split()}
    for word in sorted(words):
        axis = next((place for place, kind in enumerate(ANSWERS) if word == kind or word in ANSWERS[kind]), None)
        numbers = [float(axis == place) + draw.gauss(0, 0.1 if axis is not None else 0.3) for place in range(8)]
        yield f"{word} {' '.join(f'{number:.3f}' for number in numbers)}"


def distinct(make: Callable[[random.Random], str], number: int, draw: random.Random) -> list[str]:
    """As many different lines as wanted."""
    lines: dict[str, None] = {}
    while len(lines) < number:
        lines[make(draw)] = None
    return list(lines)


def files() -> Iterator[tuple[str, list[str]]]:
    """Every file with its lines."""
    nouns = random.Random(1).sample([*NOUNS, *FOURTH], len(NOUNS) + len(FOURTH))
    for part, chosen in (("train", nouns[30:]), ("dev", nouns[:10]), ("test", nouns[10:30])):
        yield f"latin.{part}.tsv", list(latin(chosen))
    for name, make, train in (("fr-en", french, 60), ("news", headline, 800)):
        lines = distinct(make, train + 200, random.Random(2))
        for part, chosen in (("train", lines[200:]), ("dev", lines[:100]), ("test", lines[100:200])):
            yield f"{name}.{part}.tsv", chosen
    draw = random.Random(3)
    asked = {part: list(questions(number, draw)) for part, number in (("train", 60), ("dev", 20), ("test", 20))}
    for part, lines in asked.items():
        yield f"questions.{part}.tsv", lines
    yield "vectors.txt", list(vectors([line for lines in asked.values() for line in lines[1:]], draw))


if __name__ == "__main__":
    for name, lines in files():
        (FOLDER / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
