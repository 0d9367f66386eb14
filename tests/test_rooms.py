"""Who imports whom: data flow one way, so every room sees only those listed before it.

Imports inside a function (a figure, a file, an optional package) are not counted.
"""

import ast
from pathlib import Path

import calor

SOURCE = Path(calor.__file__).parent
ROOMS = {
    "Ground": """__init__ _atomic _checks _numerics _types calculus chebyshev files levenberg
        metrics mixture networks parametrix permanents polynomials regression rows training""",
    "Geometry": "manifolds names sampling tables",
    "Equation": "heat exact shorttime geodesics matchings",
    "Kernel": """solutions pairs cloud_solutions collocation recipes certificate learned solver
        spectral""",
    "Diffusion": """prior score data scales gaussian guesses forward reverse likelihood models
        fitting diffusion flow density denoisers equivariant""",
    "Street": """_oracles _public accuracy cache checkpoint cli datasets demo experiments kernels
        molecules plots qm9 sklearn validation""",
}
ROOM_OF = {module: room for room, modules in ROOMS.items() for module in modules.split()}
# A diffusion takes any kernel and never asks how it was found.
SEEN = {
    "Ground": ["Ground"],
    "Geometry": ["Ground", "Geometry"],
    "Equation": ["Ground", "Geometry", "Equation"],
    "Kernel": ["Ground", "Geometry", "Equation", "Kernel"],
    "Diffusion": ["Ground", "Geometry", "Equation", "Diffusion"],
    "Street": list(ROOMS),
}


def imported(path):
    """The modules of calor that a file imports when it is imported itself."""
    folder = path.relative_to(SOURCE).parts[:-1]
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.level:
            above = list(folder)[: len(folder) - node.level + 1]
            names = [node.module] if node.module else [alias.name for alias in node.names]
            for name in names:
                yield [*above, *name.split(".")][0]


def test_rooms_see_only_what_comes_before_them():
    for path in SOURCE.rglob("*.py"):
        own = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        for other in imported(path):
            if other not in ("__version__", own):
                seen = SEEN[ROOM_OF[own]]
                assert ROOM_OF[other] in seen, f"{own} ({ROOM_OF[own]}) imports {other}"
