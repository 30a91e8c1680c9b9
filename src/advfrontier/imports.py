"""Import the Python that a user names: a file, or a module that may be in the working directory."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from hashlib import blake2b
from pathlib import Path
from types import ModuleType

from advfrontier.errors import FrontierError


def import_here(name: str) -> ModuleType:
    """Return a module, also of the working directory.

    Args:
        name: Name of a module, such as `package.module`, as `import` takes it.
    """
    here = str(Path.cwd())
    if here not in sys.path:  # a console command, unlike `python -m`, does not look here
        sys.path.append(here)
    return importlib.import_module(name)


def import_file(path: Path) -> ModuleType:
    """Run a Python file and return it as a module.

    Args:
        path: Python file to import.
    """
    path = path.resolve()
    if str(path.parent) not in sys.path:  # lets it import its neighbours, as a script can
        sys.path.append(str(path.parent))
    name = f"{path.stem}_{blake2b(str(path).encode(), digest_size=4).hexdigest()}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise FrontierError(f"{path} cannot be imported: expected a Python file ending in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
