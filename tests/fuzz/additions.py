"""Every way to write the addition of a state and a rate.

A spelling gets the names of both and of the sum. In the reference the rate goes through ``AT``
first, which knows the step by the object whose code adds, and a number.
"""

from collections.abc import Callable

from fuzz.source import PLAIN, REFERENCE, Code, both, indented

Spelling = Callable[[Code, str, str, str], list[str]]

EXPRESSIONS = {
    "plus": "STATE + RATE",
    "plus, rate first": "RATE + STATE",
    "torch.add": "torch.add(STATE, RATE)",
    "torch.add, rate first": "torch.add(RATE, STATE)",
    "torch.add by name": "torch.add(input=STATE, other=RATE)",
    "torch.add by name, turned": "torch.add(other=RATE, input=STATE)",
    "torch.add half by name": "torch.add(STATE, other=RATE)",
    "method add": "STATE.add(RATE)",
    "method add, rate first": "RATE.add(STATE)",
    "minus": "STATE - RATE",
    "torch.sub": "torch.sub(STATE, RATE)",
    "float functional": "self.skip_add.add(STATE, RATE)",
    "sum of a list": "sum([STATE, RATE])",
    "sum of a tuple, rate first": "sum((RATE, STATE))",
    "operator": "operator.add(STATE, RATE)",
    "operator in place": "operator.iadd(STATE.clone(), RATE)",
    "dunder": "STATE.__add__(RATE)",
    "unbound": "torch.Tensor.add(STATE, RATE)",
    "starred": "torch.add(*(STATE, RATE))",
    "starred by name": "torch.add(STATE, **{'other': RATE})",
    "helper": "_joined(STATE, RATE)",
    "helper, rate first": "_joined(RATE, STATE)",
    "static method": "self._added(STATE, RATE)",
    "inside a call": "torch.clone(STATE + RATE)",
    "in a dictionary": "{'sum': STATE + RATE}['sum']",
    "in a tuple": "(STATE + RATE, 1)[0]",
    "in a comprehension": "[a + b for a, b in [(STATE, RATE)]][0]",
    "in a generator": "next(a + b for a, b in [(STATE, RATE)])",
    "in a lambda": "(lambda a, b: a + b)(STATE, RATE)",
    "in a default": "(lambda a=STATE, b=RATE: a + b)()",
    "reduce": "functools.reduce(operator.add, [STATE, RATE])",
    "partial": "functools.partial(torch.add, STATE)(RATE)",
    "conditional": "STATE + RATE if self.adds else RATE",
    "conditional, turned": "RATE if not self.adds else STATE + RATE",
    "parenthesised": "((STATE) + ((RATE)))",
    "walrus": "(total := STATE + RATE)",
    "of views": "(STATE.flatten(1) + RATE.flatten(1)).view(STATE.shape)",
    "unary plus": "STATE + (+RATE)",
    "stack": "torch.stack([STATE, RATE]).sum(0)",
    "stack, sum": "torch.sum(torch.stack((STATE, RATE), 0), 0)",
    "einsum": "torch.einsum('i...,i->...', torch.stack([STATE, RATE]), STATE.new_ones(2))",
}
"""Spellings that are one expression."""

NOT_ADDITIONS = frozenset(("stack", "stack, sum", "einsum"))
"""Spellings without an addition of two values. `stiffnet` calls additions steps, so that it may
pass over these; it is counted how often it does."""

SCALED = {
    "alpha": ("torch.add(STATE, RATE, alpha=0.5)", 0.5),
    "alpha by method": ("STATE.add(RATE, alpha=2)", 2.0),
    "alpha of sub": ("torch.sub(STATE, RATE, alpha=0.25)", 0.25),
}
"""Spellings that scale the rate themselves: the scale is a step size."""

IN_PLACE_ON_STATE = ("{s} += {r}", "{s}.add_({r})", "{s} -= {r}", "torch.add({s}, {r}, out={s})")
IN_PLACE_ON_RATE = ("{r} += {s}", "{r}.add_({s})")

MULTI_LINE = (
    ["SUM = (", "    STATE  # the state + nothing", "    + RATE", ")"],
    ["SUM = (STATE", "       +  # now the rate", "       RATE)"],
    ["SUM = STATE + \\", "    RATE"],
    ["SUM = torch.add(", "    STATE,", "    # the rate", "    RATE,", ")"],
)
NEEDS = {
    "float functional": "self.skip_add = torch.ao.nn.quantized.FloatFunctional()",
    "conditional": "self.adds = True",
    "conditional, turned": "self.adds = True",
}


def spelled(code: Code, state: str, rate: str, total: str, *, views: bool = True) -> list[str]:
    """Write one step: ``total`` becomes the sum of ``state`` and ``rate``."""
    rng = code.rng
    step = code.steps
    code.steps += 1
    gated = f"gated{step}"
    at = f"{REFERENCE}{gated} = AT(self, {state}, {rate})"
    kind = rng.random()
    if kind < 0.12:
        code.traits.add("added: in place on the state")
        line = rng.choice(IN_PLACE_ON_STATE[:3]).format(s=state, r="RATE")
        return [at, *both(line, rate, gated), f"{total} = {state}"]
    if kind < 0.2:
        code.traits.add("added: in place on the rate")
        line = rng.choice(IN_PLACE_ON_RATE).format(s=state, r=rate)
        return [at, f"{REFERENCE}{rate} = {gated}", line, f"{total} = {rate}"]
    if kind < 0.28:
        code.traits.add("added: on several lines")
        lines = []
        for line in rng.choice(MULTI_LINE):
            text = line.replace("STATE", state).replace("SUM", total)
            lines.append(text)
        plain = [PLAIN + line.replace("RATE", rate) for line in lines]
        return [*plain, at, *(REFERENCE + line.replace("RATE", gated) for line in lines)]
    if kind < 0.36:
        name = rng.choice(sorted(SCALED))
        expression, scale = SCALED[name]
        at = at.replace(f"{rate})", f"{rate}, scale={scale})")
    elif kind < 0.42:
        return [at, *_elsewhere(code, state, rate, total, gated)]
    else:
        name = rng.choice(sorted(EXPRESSIONS))
        expression = EXPRESSIONS[name]
        if name in NOT_ADDITIONS:
            at = at.replace(f"{rate})", f"{rate}, addition=False)")
        if name in NEEDS:
            code.fields.append(NEEDS[name])
    code.traits.add(f"added: {name}")
    if name == "static method" and "def _added(a, b):" not in code.methods:
        code.methods += ["@staticmethod", "def _added(a, b):", "    return a + b", ""]
    return [at, *both(f"{total} = {expression.replace('STATE', state)}", rate, gated)]


def _elsewhere(code: Code, state: str, rate: str, total: str, gated: str) -> list[str]:
    """An addition in a function or under a statement of its own."""
    add = both(f"{total} = {state} + RATE", rate, gated)
    kind = code.rng.choice(("nested", "closure", "with", "try", "match", "for", "while", "if"))
    code.traits.add(f"added: in a {kind}")
    if kind == "nested":
        inner = ["def joined(a, b):", "    return a + b"]
        return [*inner, *both(f"{total} = joined({state}, RATE)", rate, gated)]
    if kind == "closure":
        inner = ["def joined():", *indented(both(f"return {state} + RATE", rate, gated))]
        return [*inner, f"{total} = joined()"]
    head = {
        "with": "with torch.autograd.set_grad_enabled(torch.is_grad_enabled()):",
        "try": "try:",
        "match": "match x.ndim:",
        "for": "for _ in range(1):",
        "while": "while True:",
        "if": "if x.ndim > 1:",
    }[kind]
    if kind == "match":
        return [head, "    case _:", *indented(add, 2)]
    tail = {"try": ["finally:", "    pass"], "while": ["    break"]}.get(kind, [])
    return [head, *indented(add), *tail]
