package dev.loupe.serve.http;

import io.netty.handler.codec.http.FullHttpRequest;
import io.netty.handler.codec.http.HttpHeaders;
import io.netty.handler.codec.http.HttpUtil;
import io.netty.handler.codec.http.HttpVersion;
import io.netty.handler.codec.http.QueryStringDecoder;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;
import org.jspecify.annotations.Nullable;

/** A request as it came: a copy of what its answer depends on. */
public final class Request {
  /** The header that names a request and its answer. */
  static final String ID = "x-request-id";

  private static final HexFormat HEX = HexFormat.of();

  private final String method;
  private final String path;
  private final Map<String, List<String>> query;
  private final HttpHeaders headers;
  private final byte[] body;
  private final boolean keepAlive;
  private final HttpVersion version;
  private final String id;

  Request(FullHttpRequest request) {
    method = request.method().name();
    String uri = request.uri();
    int end = uri.indexOf('?');
    path = end < 0 ? uri : uri.substring(0, end);
    query = end < 0 ? Map.of() : parameters(uri);
    headers = request.headers().copy();
    body = new byte[request.content().readableBytes()];
    request.content().getBytes(request.content().readerIndex(), body);
    keepAlive = HttpUtil.isKeepAlive(request);
    version = request.protocolVersion();
    id = idOf(headers.getAll(ID));
  }

  /**
   * The client's own name of its request, if it gives one that a header can carry; or a new one.
   */
  private static String idOf(List<String> given) {
    return given.size() == 1 && given.getFirst().matches("[\\x21-\\x7e]{1,128}")
        ? given.getFirst()
        : newId();
  }

  static String newId() {
    byte[] random = new byte[12];
    ThreadLocalRandom.current().nextBytes(random);
    return "req_" + HEX.formatHex(random);
  }

  /** Those of a query that can be read; of one that can't, none. */
  private static Map<String, List<String>> parameters(String uri) {
    try {
      return new QueryStringDecoder(uri).parameters();
    } catch (IllegalArgumentException e) {
      return Map.of();
    }
  }

  public String method() {
    return method;
  }

  /** The value of a parameter of the query, null if it is absent; of several the first. */
  public @Nullable String parameter(String name) {
    List<String> values = query.get(name);
    return values == null ? null : values.getFirst();
  }

  /** What was asked for, without a query. */
  public String path() {
    return path;
  }

  public List<String> headers(String name) {
    return headers.getAll(name);
  }

  public byte[] body() {
    return body;
  }

  /** Its own name, which the answer repeats. */
  String id() {
    return id;
  }

  boolean isHttp11() {
    return version.equals(HttpVersion.HTTP_1_1);
  }

  /** Whether the client may send another on the same connection. */
  boolean mayGoOn() {
    return keepAlive && isHttp11();
  }
}
