"""Launch scripts are read as bash itself expands them, and no shell is run for it."""

import subprocess
from itertools import product
from pathlib import Path
from shutil import which

import pytest

from hetopt.errors import InstanceError
from hetopt.formats.importing.shell import Command, Word, read

EXAMPLE = """#!/bin/bash
# Runs a model on one node
export CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-1}
GPUS_PER_NODE=8
NUM_NODES=2 # more than one
WORLD_SIZE=$(($GPUS_PER_NODE*$NUM_NODES))
TP_SIZE=${TP_SIZE:-"2"}
DTYPE="fp8"
DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --master_addr ${MASTER_ADDR:-localhost}
)
MODEL_ARGS=(
    --num-layers 4  # of them
    # --hidden-size 1
    --hidden-size 1024 \\
    --split '99,1,0' "--title" "two words"
)
DTYPE_ARGS=()
if [[ "$DTYPE" == "fp8" ]]; then
    DTYPE_ARGS+=(
        "--fp8-format hybrid"
        "--fp8-param-gather"
    )
else
    DTYPE_ARGS=(--bf16)
fi
if [ -n "${WANDB_API_KEY}" ]; then
    MODEL_ARGS+=( --wandb-project ${WANDB_PROJECT:-"mine"} )
fi
DDP_ARGS=(--use-distributed-optimizer)
MODEL_ARGS+=("${DDP_ARGS[@]}")
OPTIONS=" --bf16 \\
    --lr 1e-4 "
mkdir -p logs 2>/dev/null || exit 1
cd . && torchrun ${DISTRIBUTED_ARGS[@]} \\
    pretrain_gpt.py ${MODEL_ARGS[@]} ${DTYPE_ARGS[@]} \\
    --tensor-model-parallel-size ${TP_SIZE} --world $WORLD_SIZE \\
    ${OPTIONS} 2>&1 | cat
"""
LINES = (
    "torchrun 'a  b' \"c  d\" e\\ f 'g'\"h\"i # no",
    'A=1; B="$A 2"; torchrun $B "$B" \'$B\' "\\$B" x${A}y ""',
    'A=(1 "2 3"); torchrun ${A[@]} "${A[@]}" "x${A[@]}y" $A ${A[1]} "${A[*]}"',
    'A=(); torchrun a ${A[@]} "${A[@]}" b',
    "A=1; A+=2; B=(1); B+=(2 3); torchrun $A ${B[@]}",
    'torchrun ${A:-x y} "${A:-x y}" ${A-z} ${A:=q} $A; torchrun $A',
    "A=; torchrun a${A:-1}b a${A-1}b a$A",
    "A=3; torchrun $((A * (2 + $A) - ${A} / 2)) $((7 % A))",
    "if [ 3 -gt 2 ] && ! [ a = b ]; then torchrun a; fi; torchrun b",
    "if [ a = b ]; then torchrun a; elif [[ -z $X ]]; then torchrun b; else :; fi",
    "if [[ a != b ]]; then if [ '' ]; then torchrun a; else torchrun b; fi; fi",
    "[ 1 = 2 ] && A=1; [ 1 = 2 ] || B=2; torchrun ${A:-0} ${B:-0}",
    "[ 1 = 1 ] || [ 1 = 2 ] && A=1; torchrun ${A:-0}",
    "A=1; unset A; torchrun ${A:-none}",
    "export A=1 B='2 3'; C=4 torchrun \"$A\" $B >/dev/null; torchrun $B 2>&1",
    "torchrun a;torchrun b&&torchrun c || torchrun d",
    "X=' a  b '; torchrun c${X}d \"$X\" $X",
    'A=(\n 1\n\n 2 # two\n)\ntorchrun "${A[@]}"',
    "A='--b 1'; C=\"torchrun $A 'd  e'\"; eval $C; eval \"B=2; $C $A\"; torchrun $B",
    "export A=1; bash -c \"torchrun $A; torchrun '2  3'\" x; torchrun $A",
    "A=1; sh -c 'A=2; :'; bash --norc -ec 'torchrun 3'; torchrun $A",
    "A=1\ncat <<EOF > x\nA=2\n{\n(\nEOF\ntorchrun $A; cat <<'B' <<-C | cat\n'\nB\n\tC\n"
    "torchrun b",
    'torchrun a "$@" $* ${1:-b} $#; while [ $# -gt 0 ]; do A=2; shift; done; '
    "torchrun ${A:-3}",
    "torchrun 'a'\\\nb c\\\n  d",
    "A='a*'; if [ \"$A\" = 'a*' ]; then B=1; fi; [ ab = \"$A\" ] && B=2; torchrun $B",
    "if [[ ! a == b ]]; then A=1; fi; torchrun $A",
)
BASH = which("bash")


def commands(script: str, place: str) -> list[Command]:
    return read(script, place).commands


def bash(script: str, folder: Path) -> list[list[str]]:
    """What torchrun gets of bash, which has nothing in its environment."""
    log = folder / "log"
    log.touch()
    stub = f"torchrun() {{ printf '%s\\0' torchrun \"$@\" $'\\n' >> '{log}'; }}\n"
    stub += "export -f torchrun\n"
    path = folder / "script.sh"
    path.write_text(stub + script)
    env = {"PATH": "/usr/bin:/bin"}
    subprocess.run([str(BASH), str(path)], cwd=folder, env=env, check=False)
    calls = log.read_text().split("\0\n\0")[:-1]
    return [call.split("\0") for call in calls]


@pytest.mark.skipif(BASH is None, reason="no bash here")
@pytest.mark.parametrize("script", [EXAMPLE, *LINES])
def test_words_are_those_of_bash(script: str, tmp_path: Path) -> None:
    found = [
        [word.text for word in one.words]
        for one in commands(script, "run.sh")
        if one.words and one.words[0].text == "torchrun"
    ]
    assert found
    assert found == bash(script, tmp_path)


@pytest.mark.skipif(BASH is None, reason="no bash here")
def test_words_of_quotes_in_any_order_are_those_of_bash(tmp_path: Path) -> None:
    pieces = ("a", " ", "'b c'", '"$A d"', "${A}", '"${B[@]}"', "${B[@]}", "\\ ")
    lines = ["".join(three) for three in product(pieces, repeat=3)]
    script = "A=' 1  2 '; B=('x y' z)\n" + "\n".join(f"torchrun {x}" for x in lines)
    found = [[word.text for word in one.words] for one in commands(script, "x")]
    found = [words for words in found if words]
    assert found == bash(script, tmp_path)


@pytest.mark.parametrize(
    ("script", "unread"),
    [
        ("run --a $X", "$X"),
        ('run --a "$1/b"', "$1"),
        ("run --a $(cat file | head)", "$(cat file | head)"),
        ("run --a `pwd`/b", "`pwd`"),
        ("A=$(nproc); B=$A; run --a x$B", "$(nproc)"),
        ("A=2; run --a ${A%x}", "${A%x}"),
        ("for A in 1 2; do B=$A; done; run --a $B", "$B (set at line 1 only"),
        ("A=1\nif [ -f x ]; then A=2; fi; run --a $A", "$A (set at line 2 only"),
        ("case $(x) in\n x) A=1 ;;\nesac; run --a $A", "$A (set at line 2 only"),
        ("f() { A=2; }; f; run --a $A", "$A (set at line 1 only if something holds)"),
        ("A=8; let B=A*2; run --a $B", "$B (set at line 1 only if something holds)"),
        ("N=2; if (( N > 1 )); then B=1; fi; run --a $B", "$B (set at line 1 only"),
        ("A=x; [[ $A == x* ]] && B=1; run --a $B", "$B (set at line 1 only if"),
        ("[ a = b -o a = a ] && B=1; run --a $B", "$B (set at line 1 only if"),
        ("A=ab; case $A in a*) B=1;; esac; run --a $B", "$B (set at line 1 only if"),
        ("false || B=1; run --a $B", "$B (set at line 1 only if something holds)"),
        ("set -- 1 2; run --a $#", "$# (set at line 1 only if something holds)"),
        ("while [ -f x ]; do A=1; shift; done; run --a $A", "$A (set at line 1"),
        ("[[ $HOST =~ x ]] && A=2; run --a $A", "$A (set at line 1 only"),
        ("A=1; if [ -f x ]; then unset A; fi; run --a $A", "$A (set at line 1 only if"),
        ("run --a $((2 ** 3))", "$((2 ** 3))"),
        ('bash -c "run --a $(pwd)"', "$(pwd)"),
        ("run --a $(expr length abc)", "$(expr length abc)"),
        ("run --a $((9999999999999 * 9))", "$((9999999999999 * 9))"),
    ],
)
def test_what_is_not_read_is_named(script: str, unread: str) -> None:
    last = commands(script, "x")[-1].words
    assert [word.unread for word in last[:2]] == [None, None]
    assert str(last[2].unread).startswith(unread)


@pytest.mark.parametrize(
    ("script", "is_sure"),
    [
        ("run", True),
        ("cd x && run", True),
        ("[ 1 = 1 ] && run", True),
        ("if [ -f x ]; then\n run; fi", False),
        ("if [ -f x ]; then :; else\n run; fi", False),
        ("if [ -f x ]; then :; elif [ 1 = 1 ]; then\n run; fi", False),
        ("[ -f x ] || run", False),
        ("for i in 1 2; do run; done", False),
        ("case $(x) in a) run ;; esac", False),
        ("train() { run; }; train", False),
        ("function train\n{\n run; }", False),
        ("function train {\n run\n}", False),
    ],
)
def test_whether_a_command_surely_runs_is_told(script: str, is_sure: bool) -> None:
    found = [one for one in commands(script, "x") if one.words[-1] == Word("run")]
    assert [one.is_sure for one in found] == [is_sure]


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("run 'a", 'x: line 1: found "\'a", expected the quote that ends it'),
        ("a\nA=(1\n2", "x: line 2: found an array that does not end"),
        ("a" * (2**17 + 1), "x: found 131073 characters, expected a launch script"),
        ("A=1\n" + "A=$A$A\n" * 60, "found '$A$A', where words stand for more"),
        ("A=('')\n" + 'A+=("${A[@]}")\n' * 60, "stand for more than 1048576"),
        ("sbatch <<EOF\nrun\nEOF", "line 1: found a here-document that a shell runs"),
    ],
)
def test_scripts_that_cannot_be_read_are_refused(script: str, message: str) -> None:
    with pytest.raises(InstanceError) as caught:
        commands(script, "x")
    assert message in str(caught.value)
    assert "paste the expanded command" in str(caught.value)
