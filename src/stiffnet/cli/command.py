"""How the help of a command shows its arguments: by their names alone."""

from typing import Any

from typer.core import TyperCommand


class Command(TyperCommand):
    """A command whose help leaves out the types of arguments, which typer would add."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Name the arguments in the line that begins with "Usage"."""
        arguments = [each for each in self.params if each.param_type_name == "argument"]
        names = (f"{each.metavar}" if each.required else f"[{each.metavar}]" for each in arguments)
        return ["[OPTIONS]", *names]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write a line for each argument and each option."""
        rows: dict[str, list[tuple[Any, str]]] = {"argument": [], "option": []}
        for each in self.get_params(ctx):
            if record := each.get_help_record(ctx):
                name = each.metavar if each.param_type_name == "argument" else record[0]
                rows[each.param_type_name].append((name, record[1]))
        for kind, written in rows.items():
            if written:
                with formatter.section(f"{kind.title()}s"):
                    formatter.write_dl(written)
