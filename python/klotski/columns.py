"""Columns of tables: pandas, arrow, and dicts of arrays as Ray Data has them."""

from __future__ import annotations

from typing import Any


def with_column(table: Any, name: str, values: Any) -> Any:
    """The table with a column added or replaced; the one that was given stays as it is."""
    if hasattr(table, "set_column"):  # arrow
        import pyarrow

        at = table.schema.get_field_index(name)
        column = values if isinstance(values, pyarrow.Array) else pyarrow.array(values)
        return table.append_column(name, column) if at < 0 else table.set_column(at, name, column)
    if hasattr(table, "assign"):  # pandas
        return table.assign(**{name: values})
    import numpy

    column = numpy.empty(len(values), dtype=object)
    column[:] = values
    return {**table, name: column}
