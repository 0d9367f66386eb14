"""Files of format 1, read as those of format 2: what says the same in other words.

There the laws of learned kernels are named without their manifold, and kernels that are made again
from their manifold, manifolds and sequences have codes of their own.
"""

from typing import Any

# The quotient that has a name, by the name of its cover.
_COVERS = {"so3": "sphere:3"}


def read(code: Any) -> Any:
    """What a code of format 1 is in format 2."""
    match code:
        case {"tuple": items}:
            return [read(item) for item in items]
        case {"exact": tag, "manifold": name}:
            return _value(tag, manifold=_manifold(name))
        case {"law": law, "of": manifold}:
            return _law(law, read(manifold))
        case {"manifold": name}:
            return _manifold(name)
        case {"submanifold": values}:
            return _value("Submanifold", **values)
        case {"class": tag, "fields": fields}:
            parts = {name: read(part) for name, part in fields.items() if name != "law"}
            if "law" in fields:
                parts["law"] = _law(fields["law"], parts["manifold"])
            return _value(tag, **parts)
    return code  # numbers, words, None and arrays


def _value(tag: str, **fields: Any) -> dict[str, Any]:
    return {"class": tag, "fields": fields}


def _manifold(name: str) -> dict[str, Any]:
    return _value("manifold", name=name)


def _law(code: dict[str, Any], manifold: dict[str, Any]) -> dict[str, Any]:
    """The law of a kernel on a manifold."""
    match code:
        case {"images": law}:
            cover = _manifold(_COVERS[manifold["fields"]["name"]])
            return _value("QuotientKernel", manifold=manifold, cover=_law(law, cover))
        case {"parametrix": order}:
            return _value("Parametrix", manifold=manifold, order=order)
        case {"law": tag}:
            return _value(tag, manifold=manifold)
    return read(code)
