"""Which options a user gave, and which of them contradict each other."""

import typer


def given(context: typer.Context, *names: str) -> list[str]:
    """Those of these options that the user gave, as flags."""
    sources = {name: context.get_parameter_source(name) for name in names}
    return [
        "--" + name.replace("_", "-") for name, source in sources.items() if source and source.name == "COMMANDLINE"
    ]


def refuse(context: typer.Context, names: tuple[str, ...], beside: str, reason: str) -> None:
    """Refuse options that have no effect beside another choice.

    Args:
        context: The call of the verb.
        names: The options, as parameters of the verb.
        beside: The other choice, as in "--at".
        reason: Why they contradict each other.

    Raises:
        ValueError: If the user gave one of the options.
    """
    flags = given(context, *names)
    if flags:
        raise ValueError(f"{flags[0]}: got it beside {beside}, but {reason}; leave one of them out")
