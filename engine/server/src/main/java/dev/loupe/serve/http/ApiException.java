package dev.loupe.serve.http;

import com.google.gson.JsonObject;
import dev.loupe.export.TerminalText;
import org.jspecify.annotations.Nullable;

/** A request that gets an error for an answer, in the form that OpenAI's clients read. */
public final class ApiException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  private static final String INVALID = "invalid_request_error";

  private final int status;
  private final String type;
  private final @Nullable String param;
  private final @Nullable String code;

  private ApiException(
      int status, String type, @Nullable String param, @Nullable String code, String message) {
    // what a client sent may be in it; what a client does wrong needs no trace
    super(TerminalText.sentence(message), null, false, false);
    this.status = status;
    this.type = type;
    this.param = param;
    this.code = code;
  }

  /** The request is wrong, whoever asks and whenever. */
  public static ApiException invalid(int status, @Nullable String code, String message) {
    return new ApiException(status, INVALID, null, code, message);
  }

  /** One field of the request is wrong. */
  public static ApiException field(String param, @Nullable String code, String message) {
    return new ApiException(400, INVALID, param, code, message);
  }

  public static ApiException noSuchModel(String message) {
    return new ApiException(404, INVALID, "model", "model_not_found", message);
  }

  static ApiException queueFull(String message) {
    return new ApiException(429, "rate_limit_error", null, "queue_full", message);
  }

  /** The server can't, now or at all. */
  public static ApiException failed(int status, @Nullable String code, String message) {
    return new ApiException(status, "server_error", null, code, message);
  }

  public static ApiException closing() {
    return failed(503, "closing", "the server is closing");
  }

  public int status() {
    return status;
  }

  JsonObject json() {
    JsonObject error = new JsonObject();
    error.addProperty("message", getMessage());
    error.addProperty("type", type);
    error.addProperty("param", param);
    error.addProperty("code", code);
    JsonObject json = new JsonObject();
    json.add("error", error);
    return json;
  }
}
