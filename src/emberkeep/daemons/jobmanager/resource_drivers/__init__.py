"""The ResourceManagerDrivers: each starts task managers on another kind of platform."""
