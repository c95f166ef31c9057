"""Samples for ranks that go at their own pace."""
