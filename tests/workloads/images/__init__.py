"""Tests of workloads on folders of images."""
