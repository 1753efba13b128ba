/**
 * The model over HTTP. {@link dev.loupe.serve.Server} listens, a {@code Connection} makes requests
 * of what arrives on a socket, {@code Api} says what becomes of each, {@code Completions} and
 * {@code Workbench} run the model; an {@code Exchange} is one request and its answer. Nothing that
 * arrives names a file.
 */
@NullMarked
package dev.loupe.serve;

import org.jspecify.annotations.NullMarked;
