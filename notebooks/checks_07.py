"""The exercises of chapter 7: what a row asks for, what a guess earns, what a layer carries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from checks import judge

from vla import tasks


def share_asked(answer: Callable[..., Any]) -> None:
    """Exercise 7.1: the share of ``n`` pairs asked for in ``m`` questions drawn with replacement.

    By counting on: with ``j`` keys still unasked, a question finds a new one in ``j`` of ``n``.
    """
    cases = []
    for n, m in ((2, 3), (5, 5), (24, 24)):
        unasked = float(n)
        for _ in range(m):
            unasked -= unasked / n
        cases.append((f"n = {n}, m = {m}", (n, m), (n - unasked) / n))
    judge(answer, cases)


def best_single_answer(answer: Callable[..., Any]) -> None:
    """Exercise 7.2: the accuracy of the commonest value, for rows of the authors' task."""
    cases = []
    for pairs in (3, 8, 24):
        task = tasks.make("mqar_authors", pairs=pairs, vocab=16 if pairs < 24 else 128, keys=(0, 0))
        row = task.sample(1, generator=tasks.seeded(pairs)).tokens[0]
        values = row[1 : 2 * pairs : 2]
        right = max(values.tolist().count(v) for v in values.tolist()) / pairs
        cases.append((f"{pairs} values", (values.clone(),), torch.tensor(right)))
    judge(answer, cases)


def length_of_equal_state(answer: Callable[..., Any]) -> None:
    """Exercise 7.3: the row length at which a softmax cache is as large as VLA's state."""
    cases = []
    for d, heads in ((32, 4), (16, 1), (64, 3)):
        state = heads * 2 * d * d
        length = next(t for t in range(1, 10 * d) if heads * 2 * d * t >= state)
        cases.append((f"d = {d}, H = {heads}", (d, heads), length))
    judge(answer, cases)
