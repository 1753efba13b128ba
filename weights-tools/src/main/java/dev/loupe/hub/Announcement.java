package dev.loupe.hub;

import dev.loupe.weights.io.StrictJson;
import java.io.IOException;
import java.net.http.HttpHeaders;
import java.util.Locale;
import java.util.OptionalLong;
import org.jspecify.annotations.Nullable;

/** What the answers on the way to a file say of it. */
final class Announcement {
  private @Nullable String hash;
  private OptionalLong size = OptionalLong.empty();

  /**
   * @param hub whether the hub itself speaks: another host's ETag need not be a hash of the content
   */
  void hear(HttpHeaders headers, boolean hub) throws IOException {
    if (!hub) {
      return;
    }
    String linked = hash(headers, "X-Linked-Etag");
    if (linked != null) {
      hash = linked;
    } else if (hash == null) {
      hash = hash(headers, "ETag");
    }
    OptionalLong linkedSize = number(headers, "X-Linked-Size");
    size = linkedSize.isPresent() ? linkedSize : size;
  }

  private static @Nullable String hash(HttpHeaders headers, String name) {
    String value = headers.firstValue(name).orElse("").replaceFirst("^W/", "").replace("\"", "");
    String hash = value.toLowerCase(Locale.ROOT);
    return hash.matches(RemoteFile.HASH) ? hash : null;
  }

  /**
   * A header's number of bytes.
   *
   * @throws IOException if the header is there and holds no such number: what it says must not be
   *     taken for something else
   */
  static OptionalLong number(HttpHeaders headers, String name) throws IOException {
    String value = headers.firstValue(name).orElse("").strip();
    if (value.isEmpty()) {
      return OptionalLong.empty();
    }
    if (!value.matches("[0-9]{1,18}")) {
      throw new IOException(
          "an answer announces %s \"%s\", which is no number of bytes"
              .formatted(name, StrictJson.shown(value)));
    }
    return OptionalLong.of(Long.parseLong(value));
  }

  /** Whether no further answer need be asked for. */
  boolean isWhole() {
    return hash != null && size.isPresent();
  }

  @Nullable String hash() {
    return hash;
  }

  OptionalLong size() {
    return size;
  }
}
