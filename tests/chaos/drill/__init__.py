"""Trainings that break beside a real Prometheus and Alertmanager."""
