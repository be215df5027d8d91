"""Tests with real brokers. They need Java 17 or newer with its compiler, and Maven, which fetches RocketMQ's jars."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("tests.interop.given", "tests.interop.served")
