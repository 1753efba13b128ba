package dev.loupe.serve;

import dev.loupe.chat.ChatTemplate;
import java.time.Duration;
import java.util.Optional;

/**
 * Where to listen, to whom, and how much to take on.
 *
 * @param host name or address to listen at; a loopback address is reached from this machine alone
 * @param port 0 takes one that is free
 * @param apiKey what clients must show as {@code Authorization: Bearer}; without one, anybody is
 *     served
 * @param queue requests that may wait while others run
 * @param slots requests that may run at once, as {@link dev.loupe.Loupe#scheduler} takes it
 * @param timeout of a request, waiting included
 * @param model the name by which clients know the model
 * @param chat what makes one text of a conversation; without it there are no conversations
 */
public record ServerOptions(
    String host,
    int port,
    Optional<String> apiKey,
    int queue,
    int slots,
    Duration timeout,
    String model,
    Optional<ChatTemplate> chat) {

  /** Likewise, without conversations. */
  public ServerOptions(
      String host,
      int port,
      Optional<String> apiKey,
      int queue,
      int slots,
      Duration timeout,
      String model) {
    this(host, port, apiKey, queue, slots, timeout, model, Optional.empty());
  }

  public ServerOptions {
    if (host.isBlank()) {
      throw new IllegalArgumentException("the host is empty: give a name or an address");
    }
    if (port < 0 || port > 65535) {
      throw new IllegalArgumentException("port %d: not 0 to 65535".formatted(port));
    }
    if (queue < 0 || queue > 10_000) {
      throw new IllegalArgumentException("queue of %d: not 0 to 10000".formatted(queue));
    }
    if (slots < 1 || slots > 1024) {
      throw new IllegalArgumentException("%d slots: not 1 to 1024".formatted(slots));
    }
    if (timeout.isNegative() || timeout.isZero()) {
      throw new IllegalArgumentException(
          "timeout of %d s: not 1 or more".formatted(timeout.toSeconds()));
    }
    if (apiKey.isPresent() && !apiKey.get().matches("[\\x21-\\x7e]+")) {
      throw new IllegalArgumentException(
          "the API key is empty, or has characters that a header can't carry");
    }
  }
}
