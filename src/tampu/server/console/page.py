"""What a page of the console is made of: a `Page` with its routes, and the `View` that each of its functions gets.

A page is a module in `tampu.server.console.pages` and a template. It shows something (`Page.show`), and offers acts
(`Page.act`). An act asks first: its function returns an `Ask`, which is shown on GET and carried out on POST, so it
works without a script too.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar

import msgspec
from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute

from tampu.broker.core import Steps
from tampu.broker.store import AllVerbs
from tampu.model.errors import Forbidden, InvalidMessage, TampuError, Unauthorized
from tampu.server.auth.grants import Caller
from tampu.server.console import render
from tampu.server.http.request import KEY, MAX_SMALL_BODY, HttpRequest
from tampu.wire.problems import problem

R = TypeVar("R")
Show = Callable[..., Awaitable[Response]]
NOTICE = "tampu_notice"
"""The cookie that brings what an act has done to the next page."""
_MOST_NOTICE = 500
_MOST_FIELDS = 1000


class Ask(msgspec.Struct, kw_only=True):
    """What a person is asked before something is done."""

    title: str
    button: str
    do: Callable[[], Coroutine[Any, Any, Response]]
    text: str = ""
    """What will happen, and to how many."""
    danger: bool = False
    """It cannot be undone, or not easily."""
    template: str = "ask.html"
    """One that extends ``ask.html`` has fields of its own."""
    values: dict[str, Any] = {}
    back: str = ""
    """Where *Cancel* leads."""


class View:
    """One request of a page: who asks, with which fields, and how to answer."""

    def __init__(self, request: HttpRequest, caller: Caller, page: Page, all_tenants: bool) -> None:
        self.request = request
        self.caller = caller
        self.page = page
        self.all_tenants = all_tenants
        """True if the caller may act in every tenant."""
        self.root = root_of(request.scope)
        """The relative address of the console."""
        self.query = _fields(request.scope["query_string"])
        self.form: dict[str, str] = {}
        self.chosen = _chosen(request.scope["query_string"])
        """The values of all boxes named ``chosen`` that are ticked."""

    @property
    def verbs(self) -> AllVerbs:
        """The verbs of the caller's tenant. What they do is recorded under the caller's name."""
        return self.request.verbs

    @property
    def engine(self) -> Any:
        return self.request.server.core.engine

    async def drive(self, steps: Steps[R]) -> R:
        """Carry out a verb."""
        return await self.request.drive(steps)

    async def listing(self, steps: Steps[R], rows: Callable[[R], int] = lambda _: 0) -> R:
        """Carry out a verb that reads much: in a thread, and no longer than somebody waits for it."""
        if self.request.scope["method"] == "GET":
            return await self.request.drive_listing(self.caller, steps, rows)
        return await self.request.server.listings.drive(self.caller, steps)

    async def read(self, work: Callable[..., R], *arguments: Any) -> R:
        """Call a function that reads the store, in a thread."""
        called = self.request.server.listings.call(self.caller, work, *arguments)
        return await (self.request.until_left(called) if self.request.scope["method"] == "GET" else called)

    def may(self, permission: str, queue: str) -> bool:
        return self.caller.may(permission, queue)

    def need(self, permission: str, *queues: str) -> None:
        self.caller.need(permission, *queues)

    def need_store(self, permission: str) -> None:
        """The permission in all queues of all tenants: agents and followers belong to the whole store."""
        self.caller.need_everywhere(permission)
        if not self.all_tenants:
            raise Forbidden("this belongs to the whole store", hint="use a key that is valid for all tenants")

    async def html(self, template: str, status: int = 200, **values: Any) -> Response:
        """The page, with the layout around it."""
        from tampu.server.console.pages import PAGES  # the pages import this module

        notice = _cookie(self.request.headers, NOTICE)
        response = html(
            template,
            self.root,
            status,
            view=self,
            page=self.page,
            caller=self.caller,
            nav=[page for page in PAGES if page.listed and page.visible(self.caller, self.all_tenants)],
            tenants=await self._tenants(),
            notice=None if notice is None else urllib.parse.unquote(notice)[:_MOST_NOTICE],
            **values,
        )
        if notice is not None:
            response.delete_cookie(NOTICE, path="/")
        return response

    async def _tenants(self) -> list[str]:
        """The tenants that the caller may choose from; empty for a key of one tenant."""
        if not self.all_tenants:
            return []
        found: list[tuple[str, str]] = await self.read(self.engine.queues)
        return sorted({self.caller.tenant, *(tenant for tenant, _ in found)})

    def done(self, notice: str, where: str) -> Response:
        """Go to a page of the console, which then says what was done."""
        response = redirect(self.root + where or "./")
        response.set_cookie(
            NOTICE, urllib.parse.quote(notice[:_MOST_NOTICE]), max_age=60, path="/", httponly=True, samesite="strict"
        )
        return response

    async def ask(self, ask: Ask, error: TampuError | None = None) -> Response:
        reply = None if error is None else problem(error)
        return await self.html(
            ask.template,
            200 if reply is None else reply.status,
            ask=ask,
            problem=reply,
            given=self.form or self.query,
            **ask.values,
        )


class Page:
    """One entry of the navigation, with the routes behind it.

    ``needs``: the permission, in at least one queue. ``everywhere``: in all queues. ``store``: of all tenants.
    ``listed``: it is in the navigation.
    """

    def __init__(
        self,
        name: str,
        title: str,
        *,
        group: str = "",
        path: str | None = None,
        needs: tuple[str, ...] = ("view",),
        everywhere: bool = False,
        store: bool = False,
        listed: bool = True,
    ) -> None:
        self.name = name
        self.title = title
        self.group = group
        self.path = name if path is None else path
        self.needs = needs
        self.everywhere = everywhere
        self.store = store
        self.listed = listed
        self.router = APIRouter(include_in_schema=False, route_class=_Route)

    def visible(self, caller: Caller, all_tenants: bool) -> bool:
        if self.store and not all_tenants:
            return False
        return any((caller.everywhere if self.everywhere else caller.somewhere)(each) for each in self.needs)

    def check(self, view: View) -> None:
        """Refuse a caller who may not see the page."""
        if self.store:
            view.need_store(self.needs[0])
        elif self.everywhere:
            view.caller.need_everywhere(self.needs[0])
        else:
            view.caller.need_somewhere(*self.needs)

    async def open(self, request: Request) -> View:
        """The view of a request, for a caller who may see the page."""
        asked: HttpRequest = request.scope[KEY]
        caller = await asked.admit()
        view = View(asked, caller, self, await asked.server.of_all_tenants(caller))
        self.check(view)
        await asked.spend(caller, 1)
        return view

    def show(self, path: str) -> Callable[[Show], Show]:
        """GET of this path. The function gets the view and the parts of the path."""

        def register(function: Show) -> Show:
            async def get(request: Request) -> Response:
                view = await self.open(request)
                return await function(view, **request.path_params)

            self.router.add_api_route(path, get, methods=["GET"], name=function.__name__)
            return function

        return register

    def act(self, path: str) -> Callable[[Callable[..., Awaitable[Ask]]], Callable[..., Awaitable[Ask]]]:
        """An act with an address of its own: GET asks, POST does. The function returns what is asked."""

        def register(function: Callable[..., Awaitable[Ask]]) -> Callable[..., Awaitable[Ask]]:
            async def get(request: Request) -> Response:
                view = await self.open(request)
                return await view.ask(await function(view, **request.path_params))

            async def post(request: Request) -> Response:
                view = await self.open(request)
                body = await view.request.body(MAX_SMALL_BODY)
                view.form = _fields(body)
                view.chosen += _chosen(body)
                ask = await function(view, **request.path_params)
                try:
                    return await ask.do()
                except Unauthorized:
                    raise
                except TampuError as error:
                    return await view.ask(ask, error)

            self.router.add_api_route(path, get, methods=["GET"], name=function.__name__)
            self.router.add_api_route(path, post, methods=["POST"], name=function.__name__)
            return function

        return register


class _Route(APIRoute):
    """Shows errors as pages, and the form to whoever has to sign in first."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle, root = super().get_route_handler(), "../" * (self.path.count("/") - 1)

        async def show(request: Request) -> Response:
            try:
                return await handle(request)
            except Unauthorized:
                return sign_in(root)
            except TampuError as error:
                return refused(root, request.scope[KEY].caller, error)

        return show


# -- answers


def root_of(scope: Any) -> str:
    """The relative address of the console, as seen from this request."""
    path: str = scope["path"].removeprefix(scope.get("root_path", ""))
    return "../" * (path.count("/") - 1)


def html(template: str, root: str, status: int = 200, **values: Any) -> Response:
    body = render.render(template, root=root, **values)
    return Response(body, status, render.HEADERS, "text/html; charset=utf-8")


def sign_in(root: str, error: str | None = None, status: int = 401) -> Response:
    return html("signin.html", root, status, error=error)


def refused(root: str, caller: Caller | None, error: TampuError) -> Response:
    reply = problem(error)
    return html("refused.html", root, reply.status, caller=caller, problem=reply)


def redirect(where: str) -> Response:
    return Response(status_code=303, headers={"location": where, "referrer-policy": "no-referrer"})


# -- fields


def _pairs(body: bytes) -> list[tuple[str, str]]:
    try:
        return urllib.parse.parse_qsl(
            body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS
        )
    except ValueError:
        raise InvalidMessage("cannot read the form", field="body") from None


def _fields(body: bytes) -> dict[str, str]:
    """The fields that are not empty, without the spaces around them."""
    return {name: value.strip() for name, value in _pairs(body) if value.strip() and "\0" not in value}


def _chosen(body: bytes) -> list[str]:
    return [value for name, value in _pairs(body) if name == "chosen"]


async def form_of(request: HttpRequest, most: int) -> dict[str, str]:
    return _fields(await request.body(most))


def _cookie(headers: Mapping[bytes, bytes], name: str) -> str | None:
    for part in headers.get(b"cookie", b"").decode("latin-1").split(";"):
        key, _, value = part.strip().partition("=")
        if key == name:
            return value.strip('"')
    return None
