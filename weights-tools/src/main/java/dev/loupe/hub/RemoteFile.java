package dev.loupe.hub;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;

/**
 * A file as the hub announces it.
 *
 * @param name plain, without folders
 * @param size bytes
 * @param hash lower-case hex: SHA-256 of the content where Git LFS keeps it (64 digits), else the
 *     SHA-1 that Git gives a blob (40)
 */
record RemoteFile(String name, long size, String hash) {
  static final String HASH = "[0-9a-f]{40}|[0-9a-f]{64}";

  RemoteFile {
    if (size < 0 || !hash.matches(HASH)) {
      throw new IllegalArgumentException("%s: size %d, hash %s".formatted(name, size, hash));
    }
  }

  String algorithm() {
    return hash.length() == 64 ? "SHA-256" : "Git SHA-1";
  }

  /** What gives {@link #hash} once it has been fed the content. */
  MessageDigest digest() {
    try {
      if (hash.length() == 64) {
        return MessageDigest.getInstance("SHA-256");
      }
      MessageDigest digest = MessageDigest.getInstance("SHA-1");
      digest.update("blob %d\0".formatted(size).getBytes(StandardCharsets.US_ASCII));
      return digest;
    } catch (NoSuchAlgorithmException e) {
      throw new AssertionError("every Java runtime has SHA-256 and SHA-1", e);
    }
  }
}
