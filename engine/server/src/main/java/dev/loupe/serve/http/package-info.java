/**
 * One request over HTTP: the connection that it came on, the fields of its body, the turn and the
 * room that it waits for, and its answer.
 */
@NullMarked
package dev.loupe.serve.http;

import org.jspecify.annotations.NullMarked;
