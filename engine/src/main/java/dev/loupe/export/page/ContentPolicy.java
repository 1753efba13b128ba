package dev.loupe.export.page;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Base64;

/**
 * What a page of one file may do, as its content security policy says it (W3C CSP Level 3): nothing
 * is fetched, and only the style and script with the hashes it names are used.
 */
public final class ContentPolicy {
  private static final String BASE =
      "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none';";

  private ContentPolicy() {}

  /** Of a page without a script. */
  public static String of(String style) {
    return BASE + " style-src " + hash(style);
  }

  /** Of a page with a script. */
  public static String of(String script, String style) {
    return BASE + " script-src " + hash(script) + "; style-src " + hash(style);
  }

  private static String hash(String inline) {
    try {
      byte[] digest =
          MessageDigest.getInstance("SHA-256").digest(inline.getBytes(StandardCharsets.UTF_8));
      return "'sha256-" + Base64.getEncoder().encodeToString(digest) + "'";
    } catch (NoSuchAlgorithmException everyJavaHasIt) {
      throw new AssertionError(everyJavaHasIt);
    }
  }
}
