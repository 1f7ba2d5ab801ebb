"""Measuring in alternation, and the table of one measurement with its verdicts.

A round runs each configuration once; every other round runs them backwards. What is printed of two
configurations is the median of what they differ by in each round, so that a machine that grows
slower or faster in between does so for both; `+-` beside it is half its interquartile range. A
verdict nearer to its limit than twice the median's standard error is marked `?`."""

import math
import statistics

# Widths of columns
NAME, RATIO, DIFFERENCE = 24, 15, 9


class Limit:
    """At most `most`: kind "ratio" or "difference" to the configuration `against`, or "value"; the
    last two in the table's unit."""

    def __init__(self, kind, most, against):
        self.kind, self.most, self.against = kind, most, against

    def text(self, unit):
        if self.kind == "ratio":
            return f"at most {self.most:g} x {self.against}"
        more = f" more than {self.against}" if self.kind == "difference" else ""
        return f"at most {self.most:g} {unit}{more}"


def in_order(items, turn):
    return items if turn % 2 == 0 else items[::-1]


def alternate(configurations, rounds, measure):
    """{name: [a figure a round]} of measure(configuration)."""
    figures = {c.name: [] for c in configurations if not c.missing}
    for turn in range(rounds):
        for c in in_order(configurations, turn):
            if not c.missing:
                figures[c.name].append(measure(c))
    return figures


def paired(figures, name, against, kind):
    if kind == "value":
        return figures[name]
    pairs = zip(figures[name], figures[against])
    return [a / b if kind == "ratio" else a - b for a, b in pairs]


def half_range(values):
    low, _, high = statistics.quantiles(values, n=4)
    return (high - low) / 2


def standard_error(values):
    """Of the median: 1.253 sigma / sqrt(n), where sigma is the interquartile range / 1.349."""
    return 1.253 * 2 * half_range(values) / 1.349 / math.sqrt(len(values))


class Verdict:
    def __init__(self, limit, values, unit):
        median = statistics.median(values)
        over = (median / limit.most - 1) * 100
        self.good = over <= 0
        self.sure = abs(median - limit.most) > 2 * standard_error(values)
        self.text = ("good" if self.good else f"OVER {over:.1f} %") + ("" if self.sure else " ?")
        shown = f"{median:.3f} x" if limit.kind == "ratio" else f"{median:+.2f} {unit}"
        shown = shown.lstrip("+") if limit.kind == "value" else shown
        self.line = f"{shown} ({limit.text(unit)})"


class Report:
    """Prints the tables as they are made; keeps the verdicts for the summary."""

    def __init__(self):
        self.verdicts = []
        self.missing = {}

    def table(self, title, unit, configurations, figures, limits=None, bases=("none", "floor")):
        """limits: {name of configuration: Limit}. Ratios to `bases`, the difference to the last.
        The summary names what stands in the title before a colon."""
        heads = [f"{'x ' + base:>{RATIO - 7}} {'+-':>6}" for base in bases]
        last = bases[-1:]
        heads += [f"{'- ' + base:>{DIFFERENCE}}" for base in last]
        print(f"\n{title}\n" + "  ".join([f"{'':{NAME}}{unit:>9} {'+-':>7}"] + heads))
        for c in configurations:
            if c.missing:
                self.missing[c.name] = c.missing
                print(f"{c.name:{NAME}}NOT MEASURED: {c.missing}")
                continue
            values = figures[c.name]
            row = [f"{c.name:{NAME}}{statistics.median(values):9.2f} {half_range(values):7.2f}"]
            row += [self.ratio(figures, c.name, base) for base in bases]
            row += [f"{self.difference(figures, c.name, base):>{DIFFERENCE}}" for base in last]
            row.append(self.remark(title, unit, c, figures, limits or {}))
            print("  ".join(row).rstrip(), flush=True)

    @staticmethod
    def ratio(figures, name, against):
        if name == against:
            return " " * RATIO
        ratios = paired(figures, name, against, "ratio")
        return f"{statistics.median(ratios):{RATIO - 7}.3f} {half_range(ratios):6.3f}"

    @staticmethod
    def difference(figures, name, against):
        if name == against:
            return ""
        return f"{statistics.median(paired(figures, name, against, 'difference')):+.2f}"

    def remark(self, title, unit, configuration, figures, limits):
        name, over = configuration.name, configuration.over
        if name in limits:
            limit = limits[name]
            values = paired(figures, name, limit.against, limit.kind)
            verdict = Verdict(limit, values, unit)
            self.verdicts.append((f"{name}, {title.partition(':')[0]}", verdict))
            return f"{verdict.text}: {verdict.line}"
        if over in figures:
            return f"{self.difference(figures, name, over)} {unit} over {over}"
        return ""

    def summary(self):
        """The exit status: 2 where something was not measured, 1 where a limit is missed for
        certain, else 0."""
        print("\nLimits (?: nearer to the limit than the noise)")
        for what, verdict in self.verdicts:
            print(f"  {verdict.text:14} {what}: {verdict.line}")
        for name, reason in self.missing.items():
            print(f"  NOT MEASURED   {name}: {reason}")
        if self.missing:
            return 2
        return 1 if any(v.sure and not v.good for _, v in self.verdicts) else 0
