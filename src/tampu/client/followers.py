"""Followers over HTTP."""

from __future__ import annotations

from tampu.broker import validate
from tampu.broker.core import Steps
from tampu.broker.follower_verbs import FollowerVerbs
from tampu.client.request import call, quoted, reader
from tampu.model.journal import FollowerStatus
from tampu.wire import bodies

_READ = reader(FollowerStatus)
_READ_ALL = reader(bodies.FollowersView, lambda reply: reply.followers)
_READ_DELETED = reader(bodies.Deleted, lambda reply: reply.deleted)


def _path(name: str, verb: str = "") -> str:
    return f"/v1/followers/{quoted(validate.name(name, 'follower'))}{verb}"


class RemoteFollowerVerbs(FollowerVerbs):
    def list_followers(self) -> Steps[list[FollowerStatus]]:
        return (yield from call("GET", "/v1/followers", _READ_ALL))

    def resume_follower(self, name: str) -> Steps[FollowerStatus]:
        return (yield from call("POST", _path(name, "/resume"), _READ))

    def remove_follower(self, name: str) -> Steps[bool]:
        return (yield from call("DELETE", _path(name), _READ_DELETED, repeat=False))
