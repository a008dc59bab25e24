"""Pages in a hurry: what they run ends at the first good plan, or after a second."""

import re

#: Of the bound, at which a search for a plan ends.
GAP = "100%"
_PLAN = re.compile(r"(hetopt plan .*--time-limit [\d.]+)")
_OTHERS = re.compile(r"(hetopt (?:explain|check) .*--time-limit )[\d.]+")
_LIMITS = re.compile(r"\blimits=([\d.]+)")


def hurried(text: str) -> str:
    """Return a page's commands and Python with limits that end soon.

    A plan has as long as the page gives it, so that one is found on a busy machine;
    the commands that have a second answer in any case.
    """
    text = _PLAN.sub(rf"\1 --gap {GAP}", text)
    text = _OTHERS.sub(r"\g<1>1", text)
    return _LIMITS.sub(r"limits=hetopt.Limits(\1, gap=1.0)", text)
