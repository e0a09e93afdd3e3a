"""Makes the environment known to Gymnasium, whichever of the two packages is imported first.

Since its version 1.0 Gymnasium no longer looks for plugins among installed packages: an environment is registered by
importing what defines it. Importing Gymnasium from here would cost those who do not use it, and registering only where
it is loaded already would let ``gymnasium.make`` hang on the order of two imports. So a finder waits for Gymnasium to
be imported and registers then; what is registered is a name, and the environment itself is loaded when one is made.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

ID = "restless_bandits/RestlessBandit-v0"
ENTRY_POINT = "restless_bandits.gym:RestlessBanditEnv"


def register(gymnasium: Any) -> None:
    """Enter the environment into Gymnasium's registry, once."""
    if ID not in gymnasium.registry:
        gymnasium.register(id=ID, entry_point=ENTRY_POINT)


def register_when_imported() -> None:
    """Register now where Gymnasium is loaded, else as soon as it is."""
    loaded = sys.modules.get("gymnasium")
    if loaded is not None:
        register(loaded)
    elif not any(isinstance(finder, _GymnasiumFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _GymnasiumFinder())


class _GymnasiumFinder(MetaPathFinder):
    """Finds Gymnasium where Python would find it, and nothing else.

    A copy that only some other finder knows is left to that one, and then ``import restless_bandits.gym`` registers.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "gymnasium":
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_register(module: ModuleType) -> None:
                execute(module)
                register(module)

            # The loader stays the one that it would be, for all who ask it for sources and files.
            spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec
