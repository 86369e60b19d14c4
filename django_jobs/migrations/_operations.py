"""Write: migration operations that ask which database they run on. Each can be undone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db.migrations.operations.base import Operation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.db.backends.base.schema import BaseDatabaseSchemaEditor
    from django.db.migrations.state import ProjectState
    from django.db.models import Model


class CommentColumns(Operation):
    """Give the columns of models their help text as comment, on PostgreSQL. (`db_comment` warns on SQLite.)"""

    reversible = True

    def __init__(self, models: Sequence[str]) -> None:
        self.models = models

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        """Comments are no part of the models' state."""

    def database_forwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        self._comment(app_label, schema_editor, to_state, cleared=False)

    def database_backwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        self._comment(app_label, schema_editor, from_state, cleared=True)

    def describe(self) -> str:
        return f"Comment the columns of {', '.join(self.models)} on PostgreSQL"

    def _comment(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, state: ProjectState, *, cleared: bool
    ) -> None:
        if schema_editor.connection.vendor != "postgresql":
            return
        quote = schema_editor.quote_name
        for name in self.models:
            model = state.apps.get_model(app_label, name)
            if not self.allow_migrate_model(schema_editor.connection.alias, model):
                continue
            for field in model._meta.local_fields:
                text = "NULL" if cleared or not field.help_text else schema_editor.quote_value(str(field.help_text))
                table = quote(model._meta.db_table)
                schema_editor.execute(f"COMMENT ON COLUMN {table}.{quote(field.column)} IS {text}")


class StorageParameters(Operation):
    """Set storage parameters of a model's table, on PostgreSQL."""

    reversible = True

    def __init__(self, model: str, **parameters: str | float) -> None:
        self.model = model
        self.parameters = parameters

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        return self.__class__.__name__, [self.model], self.parameters

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        """Storage parameters are no part of the models' state."""

    def database_forwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        pairs = ", ".join(f"{name} = {value}" for name, value in self.parameters.items())
        self._alter(app_label, schema_editor, to_state, f"SET ({pairs})")

    def database_backwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        self._alter(app_label, schema_editor, from_state, f"RESET ({', '.join(self.parameters)})")

    def describe(self) -> str:
        return f"Set storage parameters of {self.model} on PostgreSQL"

    def _alter(self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, state: ProjectState, action: str) -> None:
        connection, model = schema_editor.connection, state.apps.get_model(app_label, self.model)
        if connection.vendor == "postgresql" and self.allow_migrate_model(connection.alias, model):
            schema_editor.execute(f"ALTER TABLE {schema_editor.quote_name(model._meta.db_table)} {action}")


class KeepSequence(Operation):
    """Do other operations such that no id of a model's table comes back, on SQLite.

    SQLite changes most columns by copying the table; the copy knows the highest id that is there, not the highest that
    ever was, and would hand out ids of deleted jobs again.
    """

    def __init__(self, model: str, operations: Sequence[Operation]) -> None:
        self.model = model
        self.operations = operations

    @property
    def reversible(self) -> bool:  # type: ignore[override]
        return all(operation.reversible for operation in self.operations)

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        for operation in self.operations:
            operation.state_forwards(app_label, state)

    def database_forwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        model = to_state.apps.get_model(app_label, self.model)
        highest = self._highest_id(schema_editor, model)
        state = from_state
        for operation in self.operations:
            after = state.clone()
            operation.state_forwards(app_label, after)
            operation.database_forwards(app_label, schema_editor, state, after)
            state = after
        _raise_sequence(schema_editor, model._meta.db_table, highest)

    def database_backwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        model = from_state.apps.get_model(app_label, self.model)
        highest = self._highest_id(schema_editor, model)
        states = [to_state]
        for operation in self.operations:
            after = states[-1].clone()
            operation.state_forwards(app_label, after)
            states.append(after)
        for place in reversed(range(len(self.operations))):
            self.operations[place].database_backwards(app_label, schema_editor, states[place + 1], states[place])
        _raise_sequence(schema_editor, model._meta.db_table, highest)

    def describe(self) -> str:
        return "; ".join(operation.describe() for operation in self.operations)

    def _highest_id(self, schema_editor: BaseDatabaseSchemaEditor, model: type[Model]) -> int:
        connection = schema_editor.connection
        if connection.vendor != "sqlite" or not self.allow_migrate_model(connection.alias, model):
            return 0
        with connection.cursor() as cursor:
            cursor.execute("SELECT seq FROM sqlite_sequence WHERE name = %s", [model._meta.db_table])
            row = cursor.fetchone()
        return row[0] if row else 0


def _raise_sequence(schema_editor: BaseDatabaseSchemaEditor, table: str, highest: int) -> None:
    if not highest:
        return
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("UPDATE sqlite_sequence SET seq = max(seq, %s) WHERE name = %s", [highest, table])
        if not cursor.rowcount:
            cursor.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (%s, %s)", [table, highest])
