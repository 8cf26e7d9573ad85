"""A plan as text, and the env file."""

import json
from dataclasses import replace
from pathlib import Path

from fakes import a_host, a_plan, an_advice
from orchestrator.core.budget import Share
from orchestrator.core.plan import Folders, stack_env, stack_owner
from orchestrator.core.render import as_env_file, as_record, as_text, from_env_file
from orchestrator.core.render_fit import advice_as_text


def test_the_plan_reads_as_two_lines_a_step_what_and_why() -> None:
    lines = as_text(a_plan(), width=200).splitlines()
    what, why = lines[::2], lines[1::2]
    assert [line.split()[0] for line in what] == [f"{n}." for n in range(1, 9)]
    assert "assemble rootfs" in what[0]
    assert "every byte is proven" in what[3]
    assert why[3] == "    o/r@aaaaaaaaaaaa: 1 file, 2.00 GB"


def test_a_step_whose_image_is_here_says_so_instead() -> None:
    plan = a_plan()
    lines = as_text(plan, frozenset({plan.steps[0].name})).splitlines()
    assert lines[1] == "    it is here already"


def test_no_line_of_the_plan_is_wider_than_the_terminal() -> None:
    for width in (40, 60, 80):
        lines = as_text(a_plan(), width=width).splitlines()
        assert max(map(len, lines)) <= width
        assert all(line.startswith("    ") or line[2] == "." for line in lines)


def test_nothing_is_none_and_not_a_fraction_of_a_kilobyte() -> None:
    share = Share(where="GPU", terms=(), have_bytes=0)
    budget = replace(an_advice().budget, vram=(share,))
    assert "GPU: needs none, has none: fits" in advice_as_text(replace(an_advice(), budget=budget))


def test_an_empty_value_of_the_placement_is_a_word() -> None:
    text = advice_as_text(an_advice())
    assert "  cpuset = all\n" in text
    assert "  gpus = none\n" in text


def test_the_plan_as_a_record_is_json_and_says_where_settings_come_from() -> None:
    record = json.loads(json.dumps(as_record(a_plan(), an_advice())))
    assert record["settings"]["webui_port"] == {"value": 3000, "from": "default"}
    assert [step["name"] for step in record["steps"]][-1] == "webui"


def test_the_env_file_is_sorted_quoted_and_read_back_as_written() -> None:
    env = {"B": "/data/a b#c$d", "A": "", "C": 'x"y'}
    text = as_env_file(env)
    assert text == "A=''\nB='/data/a b#c$d'\nC='x\"y'\n"
    assert from_env_file(text) == env


def test_containers_run_as_the_installing_user_and_never_as_root() -> None:
    assert stack_owner(a_host(uid=1000, gid=985)) == (1000, 985)
    assert stack_owner(a_host(uid=0, gid=0)) == (10001, 10001)


def test_no_variable_of_the_stack_can_be_shadowed_by_a_common_shell_variable() -> None:
    folders = Folders(
        locks=Path("/l"),
        job=Path("/j"),
        source=Path("/s"),
        weights=Path("/w"),
        secrets=Path("/k"),
        control=Path("/c"),
        usage=Path("/u"),
        placement=Path("/p"),
        ca_bundle=None,
    )
    env = stack_env(an_advice(), a_host(), folders, {"gateway": "image:1"})
    assert all(name.startswith(("STACK_", "COMPOSE_")) for name in env)
    assert env["STACK_GATEWAY_IMAGE"] == "image:1"
