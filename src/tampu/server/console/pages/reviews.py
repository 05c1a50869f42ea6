"""Reviews: the inbox of what waits for a person, one review with its form, and the decision."""

from __future__ import annotations

from typing import Any

from fastapi import Response

from tampu.broker.policies.reviews.stored import Found
from tampu.model.errors import InvalidMessage, NotFound
from tampu.model.message import Message
from tampu.model.reviews import ReviewField, ReviewPage, ReviewRecord
from tampu.server.console import render
from tampu.server.console.page import Ask, Page, View
from tampu.server.console.parts import json_field, quoted
from tampu.server.routes.reviews import find_review, may_decide

page = Page("reviews", "Reviews", group="1", needs=("review", "view"))
_LISTED = 200


async def _find(view: View, id: str, *, decide: bool) -> Found:
    return await find_review(view.request, view.caller, id, decide=decide)


@page.show("/reviews")
async def inbox(view: View) -> Response:
    def may(queue: str) -> bool:
        return view.may("review", queue) or view.may("view", queue)

    given = {name: view.query[name] for name in ("role", "assignee", "queue", "pattern") if name in view.query}
    steps = view.verbs.open_reviews(
        given.get("role"), given.get("assignee"), given.get("queue"), given.get("pattern"), None, _LISTED, may
    )
    found: ReviewPage = await view.listing(steps, len)
    shown = [one for one in found if view.may("view", one.queue) or may_decide(view.caller, one.queue, one.roles)]
    return await view.html(
        "reviews.html", reviews=[(one, may_decide(view.caller, one.queue, one.roles)) for one in shown], given=given
    )


@page.show("/reviews/{id}")
async def show(view: View, id: str) -> Response:
    found = await _find(view, id, decide=False)
    message: Any = found.message
    review: ReviewRecord = await view.drive(view.verbs.get_review(found.id))
    return await view.html(
        "review.html",
        review=review,
        payload=render.payload(message) if isinstance(message, Message) and view.may("view", message.queue) else None,
        decides=review.state == "open" and may_decide(view.caller, message.queue, found.roles),
    )


def _value(field: ReviewField, name: str, text: str | None) -> Any:
    """What was typed into a field of the form."""
    if field.type == "boolean":
        return text == "true"
    if text is None:
        return None
    try:
        return int(text) if field.type == "integer" else float(text) if field.type == "number" else text
    except ValueError:
        raise InvalidMessage(f"{name} must be a number", field=name) from None


@page.act("/reviews/{id}/decide/{option}")
async def decide(view: View, id: str, option: str) -> Ask:
    found = await _find(view, id, decide=True)
    review: ReviewRecord = await view.drive(view.verbs.get_review(found.id))
    chosen = next((one for one in review.options if one.name == option), None)
    if chosen is None:
        raise NotFound(f"this review has no option {option}", field="option")

    async def do() -> Response:
        values = {name: _value(field, name, view.form.get(f"field-{name}")) for name, field in review.fields.items()}
        done: ReviewRecord = await view.drive(
            view.verbs.decide_review(
                found.id,
                option,
                reason=view.form.get("reason"),
                fields={name: value for name, value in values.items() if value is not None} or None,
                payload=json_field(view.form, "payload"),
            )
        )
        left = done.approvals - len(done.votes)
        if done.state == "open":
            return view.done(f"Your vote counts; {left} more to go.", f"reviews/{quoted(found.id)}")
        return view.done(f"Decided: {option}.", "reviews")

    refuses = chosen.outcome == "refuse"
    return Ask(
        title=f"{chosen.title or chosen.name}?", danger=refuses, button=chosen.title or chosen.name, do=do,
        text="The message becomes a dead letter." if refuses else "The message goes on to its worker.",
        template="review_decide.html", values={"review": review, "fields": {} if refuses else review.fields},
        back=f"reviews/{quoted(found.id)}",
    )  # fmt: skip


@page.act("/reviews/{id}/claim")
async def claim(view: View, id: str) -> Ask:
    found = await _find(view, id, decide=True)

    async def do() -> Response:
        await view.drive(view.verbs.claim_review(found.id))
        return view.done("It is yours: nobody else can decide it.", f"reviews/{quoted(found.id)}")

    return Ask(
        title="Take this review?", text="Nobody else can decide it then, until it is reassigned.", button="Take it",
        do=do, back=f"reviews/{quoted(found.id)}",
    )  # fmt: skip


@page.act("/reviews/{id}/comment")
async def comment(view: View, id: str) -> Ask:
    found = await _find(view, id, decide=True)

    async def do() -> Response:
        await view.drive(view.verbs.comment_review(found.id, view.form.get("text", "")))
        return view.done("Added your comment.", f"reviews/{quoted(found.id)}")

    return Ask(title="Comment", button="Add", do=do, template="review_comment.html", back=f"reviews/{quoted(found.id)}")


@page.act("/reviews/{id}/reassign")
async def reassign(view: View, id: str) -> Ask:
    found = await _find(view, id, decide=True)

    async def do() -> Response:
        roles = [one.strip() for one in view.form.get("roles", "").split(",") if one.strip()]
        await view.drive(view.verbs.reassign_review(found.id, view.form.get("to"), roles=roles or None))
        return view.done("Reassigned.", f"reviews/{quoted(found.id)}")

    return Ask(
        title="Give it to somebody else", button="Reassign", do=do, template="review_reassign.html",
        back=f"reviews/{quoted(found.id)}",
    )  # fmt: skip
