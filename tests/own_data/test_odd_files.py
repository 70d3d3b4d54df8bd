"""Of every odd file either all is found, or one sentence says what is wrong with it."""

import pytest

from antiphon.exceptions import InputError
from antiphon.own_data.plan import make_plan
from antiphon.own_data.table_file import read_table
from tests.own_data.odd_files import Odd, odd_files


@pytest.mark.parametrize("odd", list(odd_files()), ids=lambda odd: odd.about)
def test_an_odd_file_is_understood_or_refused_in_a_sentence(tmp_path, odd: Odd):
    path = tmp_path / odd.name
    path.write_bytes(odd.content)
    if not odd.recipe:
        with pytest.raises(InputError) as error:
            make_plan(read_table(path))
        said = str(error.value)
        assert "\n" not in said
        assert len(said) < 400
    else:
        plan = make_plan(read_table(path))
        said = " ".join(f"{each.about} {each.found} {each.override}" for each in plan.decisions)
        assert plan.recipe == odd.recipe, said
        assert {"train", "dev"} == plan.parts.keys()
    assert all(text in said for text in odd.found), said
