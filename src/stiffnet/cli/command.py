"""How the help of a command shows its arguments: by their names alone."""

from typing import Any

from typer.core import TyperCommand


class Command(TyperCommand):
    """A command whose help leaves out the types of arguments, which typer would add."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Name the arguments in the line that begins with "Usage"."""
        arguments = [each for each in self.params if _is_argument(each)]
        names = (f"{each.metavar}" if each.required else f"[{each.metavar}]" for each in arguments)
        return ["[OPTIONS]", *names]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write a line for each argument and each option."""
        for title, wanted in (("Arguments", True), ("Options", False)):
            params = [each for each in self.get_params(ctx) if _is_argument(each) is wanted]
            records = [(each, each.get_help_record(ctx)) for each in params]
            rows = [
                (each.metavar if wanted else record[0], record[1])
                for each, record in records
                if record is not None
            ]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def _is_argument(param: Any) -> bool:
    return bool(param.param_type_name == "argument")
