"""Nothing asks what a manifold, a kernel, a score or a solution is: they are told, and answer.

`isinstance` and its like are refused where they ask for a class of calor, and so are `hasattr` and
`getattr` with a name, `type(...)`, class patterns and tables whose keys are classes.  What a family
does differently is a method, or an entry in a registry that stands beside the family.
"""

import ast
from pathlib import Path

import calor

SOURCE = Path(calor.__file__).parent
# Where an argument of a user is checked, and the error says what was wanted.
DOORS = {
    "cli/_own.py": {"manifold_from", "_is_choice"},  # what a user's own file defines
    "cli/_points.py": {"load_model"},
    "cli/check.py": {"_check"},
    "heat/early/laws.py": {"Varadhan.__check_init__", "AbstractCorrectedGaussian.__check_init__"},
    "models/denoisers.py": {"_needs_spd"},
    "models/specification.py": {"check_kernel"},
    "plots/_surfaces.py": {"surface"},
    "sklearn.py": {"DiffusionDensity.fit"},
    "solvers/choose.py": {"heat_kernel"},
    "solvers/recipes/_clouds.py": {"Clouds.plan"},
    "solvers/recipes/_pairs.py": {"Pairs.plan"},
    "solvers/recipes/base.py": {"check_space"},
    "solvers/solve.py": {"solve"},
    "solvers/spectral/galerkin.py": {"solve_spectral"},
}
# Questions about what is no manifold, kernel, score or solution: frames, modules, errors, leaves.
FOREIGN = {
    "cli/_own.py": {"_run", "_is_choice"},
    "core/checks.py": {"field_values"},
    "data/forms.py": {"as_array"},
    "plots/_curves.py": {"histories"},  # a model, or its history alone
    "training/fixed.py": {"trainable"},
}


def classes():
    """The names of all classes that calor defines."""
    return {
        node.name
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    }


OURS = classes()


def names(node):
    """All names in an expression, with the last part of dotted ones."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name):
            yield inner.id
        elif isinstance(inner, ast.Attribute):
            yield inner.attr


def is_naming(node, parents):
    """Whether `type(x)` only serves to write down a name, as in `type(x).__name__`."""
    parent = parents.get(node)
    return isinstance(parent, ast.Attribute) and parent.attr in ("__name__", "__mro__")


def question(node, parents):
    """What a node asks, if it asks for a class of calor."""
    if isinstance(node, ast.MatchClass):
        return "a class pattern"
    if isinstance(node, ast.Dict):
        keys = [key.id for key in node.keys if isinstance(key, ast.Name)]
        return "a table keyed by classes" if OURS & set(keys) else None
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
        return None
    asked = node.func.id
    if asked in ("isinstance", "issubclass") and OURS & set(names(node.args[1])):
        return asked
    if asked in ("hasattr", "getattr") and isinstance(node.args[1], ast.Constant):
        return asked
    if asked == "type" and len(node.args) == 1 and not is_naming(node, parents):
        return asked
    return None


def questions(path):
    """Questions in a file: the function they are in, the line, and what they are."""
    tree = ast.parse(path.read_text())
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        found = question(node, parents)
        if found is None:
            continue
        inside, place = "", node
        while place in parents:
            place = parents[place]
            if isinstance(place, ast.FunctionDef | ast.ClassDef):
                inside = f"{place.name}.{inside}" if inside else place.name
        yield inside, node.lineno, found


def test_nothing_asks_what_it_is_given():
    allowed = {
        (f, inside) for table in (DOORS, FOREIGN) for f, some in table.items() for inside in some
    }
    asked, used = [], set()
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if name.startswith("manifolds/"):  # a manifold may know its own kind
            continue
        for inside, line, found in questions(path):
            if (name, inside) in allowed:
                used.add((name, inside))
            else:
                asked.append(f"{name}:{line} {inside}: {found}")
    assert not asked, "\n".join(asked)
    assert used == allowed, f"doors that ask nothing any more: {sorted(allowed - used)}"


def test_there_are_few_doors():
    assert sum(map(len, DOORS.values())) <= 16
