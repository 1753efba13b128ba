package dev.loupe.serve;

import dev.loupe.Loupe;
import dev.loupe.serve.http.ApiException;
import dev.loupe.serve.http.Connection;
import dev.loupe.serve.http.Connections;
import dev.loupe.serve.http.Exchange;
import dev.loupe.serve.http.Places;
import io.netty.bootstrap.ServerBootstrap;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.WriteBufferWaterMark;
import io.netty.channel.group.ChannelGroup;
import io.netty.channel.group.DefaultChannelGroup;
import io.netty.channel.nio.NioIoHandler;
import io.netty.channel.socket.SocketChannel;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import io.netty.handler.codec.http.HttpMessage;
import io.netty.handler.codec.http.HttpObjectAggregator;
import io.netty.handler.codec.http.HttpServerCodec;
import io.netty.util.concurrent.DefaultThreadFactory;
import io.netty.util.concurrent.GlobalEventExecutor;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;
import java.time.Duration;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/**
 * A model as an HTTP server that OpenAI's clients can talk to. It does not own the model: close the
 * server first.
 *
 * <p>Netty speaks HTTP. The JDK's own server (com.sun.net.httpserver) would need no library, but it
 * does not look at a socket between request and answer: it learns that a client went away from a
 * failed write, and a run whose answer is sent whole at the end would hold its place to the end.
 * With Netty the end of a connection is an event; it also bounds headers and bodies. One thread
 * does all that; handlers block in threads of their own, about as many as requests that run or
 * wait. A client that only ends its own side of the connection counts as gone.
 */
public final class Server implements AutoCloseable {
  /** Bytes of a request's body. */
  static final int MOST_BODY = 1 << 20;

  private static final int MOST_LINE = 4096;
  private static final int MOST_HEADERS = 16 << 10;
  private static final int MOST_CONNECTIONS = 256;

  /** Of one address; more where so many of its requests may run and wait. */
  private static final int MOST_OF_ADDRESS = 128;

  /** Bytes of a connection that wait for a slow reader before whoever writes them does. */
  private static final int MOST_UNREAD = 128 << 10;

  /**
   * Bytes that the system holds for one connection. What it would choose by itself, some megabytes,
   * lets a slow reader show no progress for minutes.
   */
  private static final int SEND_BUFFER = 128 << 10;

  private final Api api;
  private final EventLoopGroup network;
  private final ExecutorService handlers;
  private final ChannelGroup connections = new DefaultChannelGroup(GlobalEventExecutor.INSTANCE);
  private final Set<Exchange> exchanges = ConcurrentHashMap.newKeySet();
  private final Channel listening;
  private final Connections admission;
  private final ServerOptions options;
  private final Duration patience;

  private Server(
      Loupe loupe,
      ServerOptions options,
      InetSocketAddress address,
      Consumer<String> failures,
      Duration patience) {
    this.options = options;
    this.patience = patience;
    int busy = options.queue() + options.slots();
    admission =
        new Connections(
            Math.max(MOST_CONNECTIONS, 2 * busy), Math.max(MOST_OF_ADDRESS, busy + busy / 2));
    api = new Api(loupe, options, address.getAddress().isLoopbackAddress(), failures);
    handlers =
        Executors.newCachedThreadPool(
            Thread.ofPlatform().daemon().name("loupe-serve-", 1).factory());
    network =
        new MultiThreadIoEventLoopGroup(
            1, new DefaultThreadFactory("loupe-http", true), NioIoHandler.newFactory());
    try {
      listening = listen(address);
    } catch (RuntimeException | Error e) {
      stop();
      throw e;
    }
  }

  /**
   * Listens; returns at once.
   *
   * @param failures hears why a request failed, where it is not the client's fault; on any thread
   * @throws IllegalArgumentException if it can't listen there: the port is taken, the host is not
   *     this machine; then with the cause, a {@link java.io.IOException}
   */
  public static Server start(Loupe loupe, ServerOptions options, Consumer<String> failures) {
    return start(loupe, options, failures, Duration.ofSeconds(30));
  }

  /** Likewise, with another time for a request to arrive in. */
  static Server start(
      Loupe loupe, ServerOptions options, Consumer<String> failures, Duration patience) {
    InetAddress host;
    try {
      host = InetAddress.getByName(options.host());
    } catch (UnknownHostException e) {
      throw new IllegalArgumentException("there is no host %s".formatted(options.host()));
    }
    InetSocketAddress address = new InetSocketAddress(host, options.port());
    return new Server(loupe, options, address, failures, patience);
  }

  private Channel listen(InetSocketAddress address) {
    ServerBootstrap bootstrap =
        new ServerBootstrap()
            .group(network)
            .channel(NioServerSocketChannel.class)
            .option(ChannelOption.SO_BACKLOG, 256)
            .option(ChannelOption.SO_REUSEADDR, true)
            .childOption(ChannelOption.TCP_NODELAY, true)
            .childOption(ChannelOption.SO_SNDBUF, SEND_BUFFER)
            .childOption(
                ChannelOption.WRITE_BUFFER_WATER_MARK,
                new WriteBufferWaterMark(MOST_UNREAD / 2, MOST_UNREAD))
            .childHandler(
                new ChannelInitializer<SocketChannel>() {
                  @Override
                  protected void initChannel(SocketChannel channel) {
                    accept(channel);
                  }
                });
    var bound = bootstrap.bind(address).awaitUninterruptibly();
    if (!bound.isSuccess()) {
      throw new IllegalArgumentException(
          "can't listen at port %d of %s: %s"
              .formatted(options.port(), options.host(), bound.cause().getMessage()),
          bound.cause());
    }
    return bound.channel();
  }

  private void accept(SocketChannel channel) {
    Connection connection = new Connection(this::handle, patience);
    if (!admission.admit(channel, connection)) {
      ChannelFuture _ = channel.close();
      return;
    }
    connections.add(channel); // leaves it by itself when it closes
    channel
        .pipeline()
        .addLast(
            new ChannelInboundHandlerAdapter() {
              @Override
              public void channelRead(ChannelHandlerContext context, Object bytes) {
                connection.arrived();
                context.fireChannelRead(bytes);
              }
            })
        .addLast(new HttpServerCodec(MOST_LINE, MOST_HEADERS, 8192))
        .addLast(new WholeRequests())
        .addLast(connection);
  }

  /** Puts a request together. Of one that is too long the rest is read and dropped. */
  private static final class WholeRequests extends HttpObjectAggregator {
    WholeRequests() {
      super(MOST_BODY);
    }

    @Override
    protected void handleOversizedMessage(ChannelHandlerContext channel, HttpMessage oversized) {
      ChannelFuture _ =
          channel.writeAndFlush(
              Exchange.whole(
                  ApiException.invalid(
                      413, null, "the body has more than %d bytes".formatted(MOST_BODY))));
    }
  }

  private void handle(Exchange exchange) {
    exchanges.add(exchange);
    handlers.execute(
        () -> {
          exchange.take();
          try {
            api.handle(exchange);
          } finally {
            exchange.release();
            exchanges.remove(exchange);
          }
        });
  }

  /** Makes what the page begins with, beside all else, so that it is there when somebody comes. */
  public void prepare() {
    handlers.execute(api::prepare);
  }

  /** Where it listens, as a client writes it. */
  public String address() {
    String host = options.host();
    return "http://%s:%d".formatted(host.contains(":") ? "[" + host + "]" : host, port());
  }

  /** Texts that are written at once: as many as were asked for, or fewer where memory is short. */
  public int slots() {
    return api.slots();
  }

  /** Whether other machines can reach it. */
  public boolean isOpenToOthers() {
    return !((InetSocketAddress) listening.localAddress()).getAddress().isLoopbackAddress();
  }

  int port() {
    return ((InetSocketAddress) listening.localAddress()).getPort();
  }

  /** Connections that are open. */
  int connections() {
    return connections.size();
  }

  /** Requests that are being answered. */
  int exchanges() {
    return exchanges.size();
  }

  Places places() {
    return api.places();
  }

  /** Ends what runs with what it has, says so to those who wait, and frees the port. */
  @Override
  public void close() {
    listening.close().awaitUninterruptibly();
    exchanges.forEach(Exchange::cancel);
    for (Channel channel : connections) {
      Connection connection = channel.pipeline().get(Connection.class);
      if (connection != null) { // null of one that has only just begun
        connection.closeSoon(channel);
      }
    }
    stop();
  }

  private void stop() {
    api.stop();
    handlers.shutdown();
    boolean interrupted = false;
    while (!handlers.isTerminated()) { // none may use the model from here on
      try {
        if (!handlers.awaitTermination(100, TimeUnit.MILLISECONDS)) {
          exchanges.forEach(Exchange::cancel);
        }
      } catch (InterruptedException e) {
        interrupted = true;
      }
    }
    api.close();
    boolean _ = connections.newCloseFuture().awaitUninterruptibly(2, TimeUnit.SECONDS);
    network.shutdownGracefully(50, 2000, TimeUnit.MILLISECONDS).awaitUninterruptibly();
    if (interrupted) {
      Thread.currentThread().interrupt();
    }
  }
}
