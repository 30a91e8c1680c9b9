"""Records: a typed header, the clean pass, images, and one file per unit. Nothing here runs."""

from advfrontier.record.folder import (
    below,
    folder_name,
    norm_folder,
    open_folder,
    write_file,
    write_files,
)
from advfrontier.record.header import Header, HeaderChange, Terms
from advfrontier.record.record import Record, find_records
from advfrontier.record.units import StoredUnit, UnitName

__all__ = [
    "Header",
    "HeaderChange",
    "Record",
    "StoredUnit",
    "Terms",
    "UnitName",
    "below",
    "find_records",
    "folder_name",
    "norm_folder",
    "open_folder",
    "write_file",
    "write_files",
]
