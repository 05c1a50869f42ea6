"""Commands that move or remove messages: `cancel free replay purge`.

`replay --from-lake` is implemented in `tampu.cli.lake.replay`.
"""

from __future__ import annotations

import threading
from typing import Annotated, Any

import typer

import tampu
from tampu.cli import documents, exits, output, parse, print_outcomes, streams
from tampu.cli.app import STATES, DryRun, Ids, QueueName, command, option, queue_names
from tampu.cli.commands.inspect.messages import message_table
from tampu.cli.session import Session
from tampu.model.states import WAITING

_STEP = 500


@command("cancel", "Manage")
def cancel(session: Session, ids: Ids, dry_run: DryRun = False) -> None:
    """Cancel waiting messages. A leased one stays leased, and its worker is asked to stop."""
    with session.open() as store:
        outcomes = [_would_cancel(store, id) for id in ids] if dry_run else store.cancel(*ids)
    if dry_run:
        session.out.note("dry run, nothing was changed; these would be the states")
    print_outcomes.answer(session, outcomes, dry_run=dry_run)


def _would_cancel(store: tampu.Store, id: str) -> tampu.Outcome:
    try:
        state = store.get(id).state
    except tampu.NotFound as error:
        return tampu.Outcome(id, None, error)
    if state in (*WAITING, tampu.State.CANCELLED):
        return tampu.Outcome(id, tampu.State.CANCELLED)
    if state is tampu.State.LEASED:
        return tampu.Outcome(id, state)
    return tampu.Outcome(id, None, tampu.InvalidState(f"the message is already {state}"))


@command("free", "Manage")
def free(session: Session, ids: Ids) -> None:
    """Free held messages, so that they are delivered."""
    with session.open() as store:
        outcomes = store.free(*ids)
    print_outcomes.answer(session, outcomes)


_LAKE_OPTIONS = "With --from-lake"


@command("replay", "Manage")
def replay(
    session: Session,
    queue: Annotated[
        str | None,
        typer.Argument(metavar="QUEUE", help="The queue; optional with --from-lake", autocompletion=queue_names),
    ] = None,
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID…", help="Message ids")] = None,
    where: Annotated[
        list[str] | None,
        option(
            "--where",
            "As in list; with --from-lake, SQL over the columns of bronze.messages; repeatable, all must match",
            metavar="FIELD=VALUE|SQL",
        ),
    ] = None,
    everything: Annotated[bool, option("--all", "All dead messages, or all of the lake")] = False,
    limit: Annotated[int | None, option("--limit", "-n", "Maximum messages", min=1)] = None,
    dry_run: DryRun = False,
    from_lake: Annotated[
        bool, option("--from-lake", "Publish messages of the lake again", panel=_LAKE_OPTIONS)
    ] = False,
    lake: Annotated[str | None, option("--lake", "Path of the lake", metavar="PATH", panel=_LAKE_OPTIONS)] = None,
    option: Annotated[
        list[str] | None, option("--option", "Storage option", metavar="NAME=VALUE", panel=_LAKE_OPTIONS)
    ] = None,
    to: Annotated[str | None, option("--queue", "Publish to this queue", metavar="QUEUE", panel=_LAKE_OPTIONS)] = None,
    rate: Annotated[str | None, option("--rate", "Messages per second", metavar="N/s", panel=_LAKE_OPTIONS)] = None,
    replay_id: Annotated[
        str | None, option("--replay-id", "Continue this replay", metavar="ID", panel=_LAKE_OPTIONS)
    ] = None,
    yes: Annotated[bool, option("--yes", "-y", "Do not ask", panel=_LAKE_OPTIONS)] = False,
) -> None:
    """Deliver dead messages again, from attempt 0. Choose them by id, --where or --all.

    With --from-lake, ended messages of the lake are published again as new messages; causation_id is the old message.
    One replay id publishes each message once, also if the command is stopped and started again.
    """
    if from_lake:
        from tampu.cli.lake import replay as lake_replay

        options = lake_replay.ReplayOptions(queue, ids, where, everything, to, limit, rate, replay_id, option)
        lake_replay.run(session, lake, options, dry_run=dry_run, yes=yes)
        return
    if lake or option or to or rate or replay_id or yes:
        raise tampu.InvalidMessage(
            "--lake, --option, --queue, --rate, --replay-id and --yes need --from-lake", field="from_lake"
        )
    if queue is None:
        raise tampu.InvalidMessage("the queue is missing", field="queue", hint="tampu replay QUEUE ID, or --from-lake")
    if sum(map(bool, (ids, where, everything))) != 1:
        raise tampu.InvalidMessage(
            "choose the messages by ids, --where or --all",
            field="ids",
            hint="give exactly one of them: ids, --where FIELD=VALUE, or --all; try --dry-run first",
        )
    with session.open() as store:
        chosen = (
            store.replay(queue, ids=ids, limit=limit, dry_run=True)
            if ids
            else store.replay(queue, where=parse.where(where), limit=limit, dry_run=True)
        )
        outcomes = list(chosen.outcomes)
        if not dry_run:
            found = [m.id for m in chosen.messages]
            with output.progress(f"replaying {queue}", len(found)) as advance:
                for start in range(0, len(found), _STEP):
                    outcomes += store.replay(queue, ids=found[start : start + _STEP]).outcomes
                    advance(min(_STEP, len(found) - start))
    if len(ids or ()) == 1 and outcomes and outcomes[0].error is not None:
        raise outcomes[0].error
    _print_replay(session, queue, chosen.messages, outcomes, dry_run=dry_run)


def _print_replay(
    session: Session, queue: str, messages: list[tampu.Message], outcomes: list[tampu.Outcome], *, dry_run: bool
) -> None:
    failed = [o for o in outcomes if not o.ok]
    done = len(messages) if dry_run else len(outcomes) - len(failed)
    if session.json:
        session.out.document(
            {
                "queue": queue,
                "dry_run": dry_run,
                "replayed": 0 if dry_run else done,
                "would_replay": done if dry_run else 0,
                "ids": [m.id for m in messages],
                "failed": [documents.outcome(o) for o in failed],
            }
        )
    else:
        if dry_run and messages:
            session.out.show(message_table(messages[:50], states=False))
        session.out.line(f"{done:,} messages {'would be replayed' if dry_run else f'of {queue} replayed'}")
        for o in failed:
            print_outcomes.print_outcome(session, o.id, o)
    if failed:
        raise typer.Exit(exits.FAILED if done else exits.of_outcomes(failed))


@command("purge", "Manage")
def purge(
    session: Session,
    queue: QueueName,
    state: Annotated[list[tampu.State], option("--state", f"{STATES}; repeatable", case_sensitive=False)],
    dry_run: DryRun = False,
    yes: Annotated[bool, option("--yes", "-y", "Do not ask")] = False,
) -> None:
    """Permanently remove all messages in a state. Asks before it removes waiting messages."""
    states = list(dict.fromkeys(state))
    with session.open() as store:
        total = store.purge(queue, state=states, dry_run=True)
        waiting = sum(store.stats(queue).counts.get(s, 0) for s in states if s in WAITING)
        if not dry_run:
            if waiting and not yes:
                streams.confirm(
                    f"permanently remove {waiting:,} waiting messages of {queue}?",
                    "this removes waiting messages",
                )
            total = _purge(store, queue, states, total)
    done = {"dry_run": dry_run, "removed": 0 if dry_run else total, "would_remove": total if dry_run else 0}
    line = f"{total:,} messages {'would be removed' if dry_run else 'removed'} from {queue}"
    session.out.answer({"queue": queue, "states": states, **done}, line)


def _purge(store: tampu.Store, queue: str, states: list[tampu.State], total: int) -> int:
    """Purge in a second thread, while this one updates the progress bar."""
    answer: list[Any] = []

    def run() -> None:
        try:
            answer.append(store.purge(queue, state=states))
        except BaseException as error:  # raised below, in the main thread
            answer.append(error)

    worker = threading.Thread(target=run, name="tampu-purge", daemon=True)
    worker.start()
    left = total
    with output.progress(f"purging {queue}", total) as advance:
        while worker.is_alive():
            worker.join(0.1)
            now = sum(store.stats(queue).counts.get(s, 0) for s in states)
            advance(max(0, left - now))
            left = min(left, now)
    if isinstance(answer[0], BaseException):
        raise answer[0]
    return int(answer[0])
