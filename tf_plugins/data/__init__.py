"""Samples for ranks that go at their own pace, and processes that read a pipeline's input."""
