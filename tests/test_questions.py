"""Nothing asks what a manifold, a kernel, a score or a solution is: they are told, and answer.

`isinstance` and its like are refused where they ask for a class of calor, and so are `hasattr` and
`getattr` with a name, `type(...)`, class patterns and tables whose keys are classes.  What a family
does differently is a method, or an entry in a registry that stands beside the family.
"""

import ast
import builtins
from pathlib import Path

import pytest

import calor

SOURCE = Path(calor.__file__).parent
# Where an argument of a user is checked, and the error says what was wanted.
DOORS = {
    "cli/_own.py": {"manifold_from", "_is_choice"},  # what a user's own file defines
    "heat/early/laws.py": {"Varadhan.__check_init__", "AbstractCorrectedGaussian.__check_init__"},
    "models/denoisers.py": {"_needs_spd"},
    "models/specification.py": {"check_kernel", "Choices.network_for"},
    "plots/_surfaces.py": {"surface"},
    "sklearn.py": {"AbstractDensity._heat"},
    "solvers/choose.py": {"heat_kernel"},
    "solvers/recipes/_clouds.py": {"Clouds.plan"},
    "solvers/recipes/_pairs.py": {"Pairs.plan"},
    "solvers/recipes/base.py": {"check_space"},
    "solvers/solve.py": {"solve"},
    "solvers/spectral/galerkin.py": {"solve_spectral"},
}
# Questions about what is no manifold, kernel, score or solution.
FOREIGN = {
    "__init__.py": {"__getattr__", "__dir__"},  # the names of a module
    "cli/_own.py": {"manifold_from", "_run", "_is_choice"},  # modules, and what is in them
    "core/checks.py": {"field_values"},  # any frozen value
    "core/registry.py": {"Registry.all"},  # where a family is asked for what it registered
    "data/datasets.py": {"moabb"},  # a module
    "data/forms.py": {"as_array"},  # data frames
    "models/fit.py": {"begin"},  # settings, for the record
    "models/network.py": {"with_times.parts"},  # what is saved
    "models/plan.py": {"Plan.of"},  # a plan, or a record of one
    "plots/_curves.py": {"histories"},  # a model, or its history alone
    "store/stored.py": {"_encode", "_form_of", "load", "stored.registered.fields"},  # what is saved
    "training/fixed.py": {"trainable"},  # leaves of trees
}


def classes():
    """The names of all classes that calor defines, and those by which they are imported."""
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                yield node.name
    yield from (name for name in dir(calor) if isinstance(getattr(calor, name), type))


OURS = set(classes())
ASKING = {"isinstance", "issubclass", "hasattr", "getattr", "vars", "dir"}
# Ways around them.
DETOURS = {"__class__", "__mro__", "__bases__", "__subclasses__", "__dict__", "builtins"}
DETOURS |= {"attrgetter", "methodcaller", "singledispatch", "singledispatchmethod"}
DETOURS |= {"getattr_static", "getmembers"}


def foreign(tree):
    """The names in a file that can be no class of calor: those of Python and other packages."""
    found = {name for name in dir(builtins) if isinstance(getattr(builtins, name), type)} | {"None"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and not node.level):
            found |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    return found


def is_class(node):
    """Whether an expression names a class of calor."""
    last = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", None)
    return last in OURS


def is_foreign(node, known):
    """Whether the second argument of `isinstance` names only classes that are not calor's."""
    if isinstance(node, ast.Tuple):
        return all(is_foreign(each, known) for each in node.elts)
    if isinstance(node, ast.BinOp):
        return is_foreign(node.left, known) and is_foreign(node.right, known)
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Constant) or (isinstance(node, ast.Name) and node.id in known)


def is_naming(node, parents):
    """Whether `type(x)` only serves to write down a name: `type(x).__name__` in a message."""
    node = parents.get(node)
    is_name = isinstance(node, ast.Attribute) and node.attr == "__name__"
    while isinstance(node, ast.Attribute | ast.Call):  # with `.lower()`
        node = parents.get(node)
    return is_name and isinstance(node, ast.FormattedValue)


def is_keyed(node, parents):
    """Whether a pair, or what is put into a table, is led by a class of calor."""
    if isinstance(node, ast.Dict):
        return any(is_class(key) for key in node.keys)
    if isinstance(node, ast.Subscript):
        return isinstance(node.ctx, ast.Store) and is_class(node.slice)
    if isinstance(node, ast.Tuple) and len(node.elts) == 2:
        inside = isinstance(parents.get(node), ast.List | ast.Tuple | ast.Set | ast.Call)
        return inside and is_class(node.elts[0]) and not is_class(node.elts[1])
    return False


def question(node, parents, known):
    """What a node asks, if it may ask for a class of calor."""
    if isinstance(node, ast.MatchClass):
        return "a class pattern"
    if isinstance(node, ast.ExceptHandler) and node.type is not None:
        return "AttributeError" if "AttributeError" in ast.unparse(node.type) else None
    if is_keyed(node, parents):
        return "a table keyed by classes"
    words = [getattr(node, part, None) for part in ("id", "attr", "name", "module")]
    if detour := next((word for word in words if word in DETOURS), None):
        return detour
    if isinstance(node, ast.Attribute) and node.attr in ASKING and node.attr != "dir":
        return node.attr
    if not (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)):
        return None
    parent = parents.get(node)
    is_called = isinstance(parent, ast.Call) and parent.func is node
    if node.id in ("isinstance", "issubclass"):
        allowed = is_called and is_foreign(parent.args[1], known)
        return None if allowed else node.id
    if node.id in ASKING:
        is_own = is_called and parent.args and ast.unparse(parent.args[0]) == "self"
        return None if is_own else node.id
    if node.id != "type":
        return None
    if is_called:
        return None if len(parent.args) == 3 or is_naming(parent, parents) else "type"
    is_class_asked = isinstance(parent, ast.Call) and "isinstance" in ast.unparse(parent.func)
    is_handed_on = isinstance(parent, ast.Call | ast.keyword | ast.Assign | ast.Dict | ast.List)
    return "type" if is_handed_on and not is_class_asked else None


def questions(text):
    """Questions in a file: the function they are in, the line, and what they are."""
    tree = ast.parse(text)
    known = foreign(tree)
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        found = question(node, parents, known)
        if found is None:
            continue
        inside, place = "", node
        while place in parents:
            place = parents[place]
            if isinstance(place, ast.FunctionDef | ast.ClassDef):
                inside = f"{place.name}.{inside}" if inside else place.name
        yield inside, getattr(node, "lineno", 0), found


def test_nothing_asks_what_it_is_given():
    allowed = {
        (f, inside) for table in (DOORS, FOREIGN) for f, some in table.items() for inside in some
    }
    asked, used = [], set()
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if name.startswith("manifolds/"):  # a manifold may know its own kind
            continue
        for inside, line, found in questions(path.read_text()):
            if (name, inside) in allowed:
                used.add((name, inside))
            else:
                asked.append(f"{name}:{line} {inside}: {found}")
    assert not asked, "\n".join(asked)
    assert used == allowed, f"doors that ask nothing any more: {sorted(allowed - used)}"


def test_there_are_few_doors():
    assert sum(map(len, DOORS.values())) <= 15


@pytest.mark.parametrize(
    "text",
    [
        "isinstance(x, Sphere)",
        "isinstance(x, HeatKernel)",
        "isinstance(x, calor.Manifold)",
        "isinstance(x, int | Sphere)",
        "isinstance(x, KNOWN)",
        "isinstance(x, classes())",
        "from .manifolds import Sphere as Ball\nisinstance(x, Ball)",
        "issubclass(c, AbstractManifold)",
        "builtins.isinstance(x, Sphere)",
        "import builtins",
        "asks = isinstance",
        "has = hasattr",
        "filter(hasattr, xs)",
        "hasattr(x, 'cover')",
        "getattr(x, 'cover', None)",
        "getattr(x, name)",
        "vars(x)",
        "'cover' in dir(x)",
        "x.__dict__",
        "x.__class__",
        "type(x)",
        "type(x) is Sphere",
        "type(x).__name__ == 'Sphere'",
        "type(x).__mro__",
        "kinds = map(type, xs)",
        "sorted(xs, key=type)",
        "kind = type",
        "{Sphere: f}",
        "{m.Sphere: f}",
        "dict([(Sphere, f)])",
        "((Sphere, f), (SPD, g))",
        "table[m.Sphere] = f",
        "from operator import attrgetter",
        "operator.attrgetter('cover')(x)",
        "@functools.singledispatch\ndef f(x): ...",
        "from functools import singledispatch",
        "try:\n    x.cover\nexcept AttributeError:\n    pass",
        "try:\n    x.cover\nexcept (KeyError, AttributeError):\n    pass",
        "match x:\n    case Sphere():\n        pass",
    ],
)
def test_a_question_is_found(text):
    assert list(questions(text))


@pytest.mark.parametrize(
    "text",
    [
        "isinstance(x, int | None)",
        "import numpy as np\nisinstance(x, (str, np.ndarray))",
        "from pathlib import Path\nisinstance(x, Path)",
        "isinstance(x, type)",
        "f'{type(x).__name__}'",
        "def f(kind: type, other: type[int]): ...",
        "Sphere(2), 'a word'",
        "getattr(self, name)",
        "f'{type(x).__name__.lower()}'",
        "raise AttributeError",
    ],
)
def test_what_is_no_question_is_not_found(text):
    assert not list(questions(text))
