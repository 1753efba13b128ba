package dev.loupe.ops;

/**
 * Memory that a session was given.
 *
 * @param arena the session's until it is closed
 * @param size that it is for
 */
public record SessionRoom(TensorArena arena, SessionSize size) {}
