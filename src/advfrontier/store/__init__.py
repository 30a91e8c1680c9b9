"""Records on disk: written whole, with checksums, and read with nothing but JSON and safetensors."""

from advfrontier.store.folder import Folder, open_folder
from advfrontier.store.packing import Damaged, pack, unpack
from advfrontier.store.store import SCHEMA, Store, StoredUnit, UnitName

__all__ = ["SCHEMA", "Damaged", "Folder", "Store", "StoredUnit", "UnitName", "open_folder", "pack", "unpack"]
